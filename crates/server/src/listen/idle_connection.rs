//! A connection between two requests: it waits for input, for shutdown and for the idle timeout, in this order of priority.
//!
//! Must not know: endpoints, how bytes are read.

use std::future::{Future, poll_fn};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use super::shutdown_or_timeout::{ShutdownOrTimeout, WakeReason};

/// A connection that is ready for a request.
#[derive(Debug)]
pub(crate) struct IdleConnection<'v, F> {
    wake_events: ShutdownOrTimeout<'v, F>,
    since: Instant,
    timeout: Duration,
}

impl<'v, F: Future<Output = ()>> IdleConnection<'v, F> {
    /// Starts the idle timeout now. The timer of `wake_events` has to be set to it.
    pub(crate) fn new(wake_events: ShutdownOrTimeout<'v, F>, timeout: Duration) -> Self {
        Self::since(wake_events, Instant::now(), timeout)
    }

    /// The same with an idle timeout that started then.
    pub(crate) const fn since(
        wake_events: ShutdownOrTimeout<'v, F>,
        since: Instant,
        timeout: Duration,
    ) -> Self {
        Self {
            wake_events,
            since,
            timeout,
        }
    }

    /// When the idle timeout started.
    pub(crate) const fn waiting_since(&self) -> Instant {
        self.since
    }

    /// Restarts the idle timeout.
    pub(crate) fn reset(&mut self) {
        self.since = Instant::now();
    }

    /// Waits for `poll`. Returns `None` if the server shuts down or the idle timeout expires first.
    pub(crate) async fn wait_for<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<Option<T>> {
        let Self {
            wake_events,
            since,
            timeout,
        } = self;
        poll_fn(|context| {
            let woken = wake_events.poll_wake(context);
            // Input that has arrived is answered before a shutdown or timeout ends the connection.
            if let Poll::Ready(arrived) = poll(context) {
                return Poll::Ready(arrived.map(Some));
            }
            match woken {
                None => Poll::Pending,
                Some(WakeReason::Shutdown) => Poll::Ready(Ok(None)),
                Some(WakeReason::Timeout) => {
                    // The timer is not restarted for every request, so it may have been set for an earlier one.
                    let ends = *since + *timeout;
                    if ends <= Instant::now() {
                        return Poll::Ready(Ok(None));
                    }
                    wake_events.wake_at(ends);
                    let _registered = wake_events.poll_wake(context);
                    Poll::Pending
                }
            }
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use tokio::time::{Instant, sleep_until};

    use super::*;
    use crate::listen::ShutdownTrigger;

    /// After the process was frozen for 6 s, timers expired before the system reported input, and 45 of 50 requests that had
    /// arrived meanwhile were dropped.
    #[tokio::test(start_paused = true)]
    async fn s_24_input_that_is_reported_just_after_the_timeout_is_answered() {
        let timeout = Duration::from_secs(5);
        for (late, expected) in [(1, Some(())), (1_000, None)] {
            let (_stop, stopping) = ShutdownTrigger::new();
            let (stopped, timer) = (
                pin!(stopping.wait()),
                pin!(sleep_until(Instant::now() + timeout)),
            );
            let wake_events = ShutdownOrTimeout::new(&stopping, stopped, timer);
            let mut idle = IdleConnection::new(wake_events, timeout);
            let report = Instant::now() + timeout + Duration::from_millis(late);
            let mut reported = pin!(sleep_until(report));
            let arrived = idle.wait_for(|context| reported.as_mut().poll(context).map(Ok));
            assert_eq!(arrived.await.unwrap(), expected, "{late} ms late");
        }
    }
}
