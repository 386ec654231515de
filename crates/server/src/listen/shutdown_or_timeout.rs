//! What a connection waits for beside bytes: that the server stops, and that too much time has passed.
//!
//! Polling a timer and the word to stop after every read costs as much as a small answer. Both wake the task by themselves
//! once it has told them to, so they are only told again when the task has another waker, and looked at otherwise. Must not
//! know: any protocol.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Waker};

use tokio::time::{Instant, Sleep};

use super::shutdown::ShutdownSignal;

/// The word to stop and a timer, told whom to wake.
#[derive(Debug)]
pub(crate) struct ShutdownOrTimeout<'a, F> {
    stopping: &'a ShutdownSignal,
    stopped: Pin<&'a mut F>,
    timer: Pin<&'a mut Sleep>,
    /// Who is woken.
    told: Option<Waker>,
}

/// Why a connection was woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// The server stops.
    Shutdown,
    /// The timer has run out. It runs again after [`ShutdownOrTimeout::wake_at`].
    Timeout,
}

impl<'a, F: Future<Output = ()>> ShutdownOrTimeout<'a, F> {
    /// `stopped` is what `stopping` is waited for with.
    pub(crate) const fn new(
        stopping: &'a ShutdownSignal,
        stopped: Pin<&'a mut F>,
        timer: Pin<&'a mut Sleep>,
    ) -> Self {
        Self {
            stopping,
            stopped,
            timer,
            told: None,
        }
    }

    /// Sets the timer again.
    pub(crate) fn wake_at(&mut self, instant: Instant) {
        self.timer.as_mut().reset(instant);
        // It forgets whom to wake when it has run out.
        self.told = None;
    }

    /// What has happened, if anything; whatever happens later wakes the task.
    ///
    /// To be asked before anything else in a poll: later the runtime may have had enough of this task, and would only
    /// say that it is to come back.
    pub(crate) fn poll_wake(&mut self, context: &mut Context<'_>) -> Option<WakeReason> {
        let waker = context.waker();
        if !self.told.as_ref().is_some_and(|told| told.will_wake(waker)) {
            self.told = Some(waker.clone());
            // What they say is asked of them below.
            let _both = (
                self.stopped.as_mut().poll(context).is_ready(),
                self.timer.as_mut().poll(context).is_ready(),
            );
        }
        if self.stopping.is_triggered() {
            return Some(WakeReason::Shutdown);
        }
        self.timer.is_elapsed().then_some(WakeReason::Timeout)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::task::Poll;
    use tokio::time::{Duration, sleep_until};

    use crate::listen::ShutdownTrigger;

    /// Waits until something has happened, and looks only when woken.
    async fn wait<F: Future<Output = ()>>(vigil: &mut ShutdownOrTimeout<'_, F>) -> WakeReason {
        poll_fn(|context| vigil.poll_wake(context).map_or(Poll::Pending, Poll::Ready)).await
    }

    #[tokio::test(start_paused = true)]
    async fn whoever_waits_is_woken_by_the_timer_as_often_as_it_is_set_and_by_the_end() {
        let (stop, stopping) = ShutdownTrigger::new();
        let second = Duration::from_secs(1);
        let (stopped, timer) = (
            pin!(stopping.wait()),
            pin!(sleep_until(Instant::now() + second)),
        );
        let mut vigil = ShutdownOrTimeout::new(&stopping, stopped, timer);
        for _ in 0..3 {
            let begun = Instant::now();
            assert_eq!(wait(&mut vigil).await, WakeReason::Timeout);
            assert_eq!(begun.elapsed(), second);
            vigil.wake_at(Instant::now() + second);
        }
        vigil.wake_at(Instant::now() + second);
        let (woken, ()) = tokio::join!(wait(&mut vigil), async { stop.trigger() });
        assert_eq!(woken, WakeReason::Shutdown);
    }
}
