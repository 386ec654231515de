//! A connection between two requests: it waits for input, for shutdown and for the idle timeout, in this order of priority.
//!
//! Must not know: endpoints, how bytes are read.

use std::future::{Future, poll_fn};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::listen::{ShutdownOrTimeout, WakeReason};

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
        Self {
            wake_events,
            since: Instant::now(),
            timeout,
        }
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
