//! What an idle connection waits for besides input: shutdown of the server and a timeout.
//!
//! Polling the timer and the shutdown signal after every read costs as much as a small response. Both keep the registered
//! waker, so they are polled only when the task's waker changes; otherwise reading their state is enough.
//!
//! A timeout counts only when the timer has expired twice. After the process was frozen, timers expire before the system
//! says which connections have input: requests that arrived meanwhile would be dropped. Must not know: any protocol.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use tokio::time::error::Elapsed;
use tokio::time::{Duration, Instant, Sleep, timeout};

use super::shutdown::ShutdownSignal;

/// The time between the two expiries of the timer, in which the system reports input that has arrived.
pub(crate) const CONFIRMATION: Duration = Duration::from_millis(10);

/// Awaits a future for this time, and for a moment more in which input that has arrived is reported.
pub(crate) async fn confirmed_timeout<F: Future>(
    time: Duration,
    future: F,
) -> Result<F::Output, Elapsed> {
    let mut future = pin!(future);
    match timeout(time, &mut future).await {
        Ok(output) => Ok(output),
        Err(_) => timeout(CONFIRMATION, future).await,
    }
}

/// A shutdown signal and a timer with the waker registered in both.
#[derive(Debug)]
pub(crate) struct ShutdownOrTimeout<'a, F> {
    stopping: &'a ShutdownSignal,
    stopped: Pin<&'a mut F>,
    timer: Pin<&'a mut Sleep>,
    /// The waker that is registered in both futures.
    registered: Option<Waker>,
    /// Whether the timer has expired once.
    has_expired: bool,
}

/// Why a connection was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// The server is shutting down.
    Shutdown,
    /// The timer has expired. [`ShutdownOrTimeout::wake_at`] restarts it.
    Timeout,
}

impl<'a, F: Future<Output = ()>> ShutdownOrTimeout<'a, F> {
    /// `stopped` is the future of `stopping.wait()`.
    pub(crate) const fn new(
        stopping: &'a ShutdownSignal,
        stopped: Pin<&'a mut F>,
        timer: Pin<&'a mut Sleep>,
    ) -> Self {
        Self {
            stopping,
            stopped,
            timer,
            registered: None,
            has_expired: false,
        }
    }

    /// Restarts the timer.
    pub(crate) fn wake_at(&mut self, instant: Instant) {
        self.has_expired = false;
        self.reset_timer(instant);
    }

    fn reset_timer(&mut self, instant: Instant) {
        self.timer.as_mut().reset(instant);
        // An expired timer has dropped its waker, so register it again.
        self.registered = None;
    }

    /// The event that has happened, if any. A later event wakes the task.
    ///
    /// Call this first in a poll: after other work tokio's cooperative budget may be used up, and both futures would only
    /// return `Pending`.
    pub(crate) fn poll_wake(&mut self, context: &mut Context<'_>) -> Option<WakeReason> {
        self.register(context);
        if self.stopping.is_triggered() {
            return Some(WakeReason::Shutdown);
        }
        if !self.timer.is_elapsed() {
            return None;
        }
        if std::mem::replace(&mut self.has_expired, true) {
            return Some(WakeReason::Timeout);
        }
        self.reset_timer(Instant::now() + CONFIRMATION);
        self.register(context);
        None
    }

    /// Registers the task's waker in both futures, unless it is registered.
    fn register(&mut self, context: &mut Context<'_>) {
        let waker = context.waker();
        if !self
            .registered
            .as_ref()
            .is_some_and(|registered| registered.will_wake(waker))
        {
            self.registered = Some(waker.clone());
            // The results are read from their state below.
            let _both = (
                self.stopped.as_mut().poll(context).is_ready(),
                self.timer.as_mut().poll(context).is_ready(),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::task::Poll;
    use tokio::time::{Duration, sleep_until};

    use crate::listen::ShutdownTrigger;

    /// Waits for an event and polls only when woken.
    async fn wait<F: Future<Output = ()>>(
        wake_events: &mut ShutdownOrTimeout<'_, F>,
    ) -> WakeReason {
        poll_fn(|context| {
            wake_events
                .poll_wake(context)
                .map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    #[tokio::test(start_paused = true)]
    async fn a_waiter_is_woken_by_every_timeout_and_by_shutdown() {
        let (stop, stopping) = ShutdownTrigger::new();
        let second = Duration::from_secs(1);
        let (stopped, timer) = (
            pin!(stopping.wait()),
            pin!(sleep_until(Instant::now() + second)),
        );
        let mut wake_events = ShutdownOrTimeout::new(&stopping, stopped, timer);
        for _ in 0..3 {
            let started = Instant::now();
            assert_eq!(wait(&mut wake_events).await, WakeReason::Timeout);
            assert_eq!(started.elapsed(), second + CONFIRMATION);
            wake_events.wake_at(Instant::now() + second);
        }
        wake_events.wake_at(Instant::now() + second);
        let (woken, ()) = tokio::join!(wait(&mut wake_events), async { stop.trigger() });
        assert_eq!(woken, WakeReason::Shutdown);
    }

    /// The timer of a message expired while the process was frozen: its input is reported after the timer.
    #[tokio::test(start_paused = true)]
    async fn s_24_what_arrived_before_a_late_timer_is_taken() {
        let limit = Duration::from_secs(10);
        let late = async {
            let never = std::future::pending::<()>();
            let simulated = tokio::time::timeout(limit + CONFIRMATION / 2, never);
            assert!(simulated.await.is_err());
            "arrived"
        };
        assert_eq!(confirmed_timeout(limit, late).await, Ok("arrived"));
        let never = std::future::pending::<()>();
        assert!(confirmed_timeout(limit, never).await.is_err());
    }
}
