//! A connection between two requests: whatever arrives is answered first, then it matters that the server stops, or that
//! nothing has come for too long.
//!
//! Must not know: what is asked or answered, how bytes are read.

use std::future::{Future, poll_fn};
use std::io;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::Instant;

use crate::listen::{ShutdownOrTimeout, WakeReason};

/// A connection that is ready for a request, and since when.
#[derive(Debug)]
pub(crate) struct IdleConnection<'v, F> {
    vigil: ShutdownOrTimeout<'v, F>,
    since: Instant,
    most: Duration,
}

impl<'v, F: Future<Output = ()>> IdleConnection<'v, F> {
    /// Ready from now on, and for so long at most. The vigil's timer is set for that.
    pub(crate) fn new(vigil: ShutdownOrTimeout<'v, F>, most: Duration) -> Self {
        Self {
            vigil,
            since: Instant::now(),
            most,
        }
    }

    /// Ready anew.
    pub(crate) fn reset(&mut self) {
        self.since = Instant::now();
    }

    /// What comes of a poll; `None` if the server stops or too much time has passed before it is ready.
    pub(crate) async fn wait_for<T>(
        &mut self,
        mut poll: impl FnMut(&mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> io::Result<Option<T>> {
        let Self { vigil, since, most } = self;
        poll_fn(|context| {
            let woken = vigil.poll_wake(context);
            // Whatever has happened, what has arrived is answered first.
            if let Poll::Ready(arrived) = poll(context) {
                return Poll::Ready(arrived.map(Some));
            }
            match woken {
                None => Poll::Pending,
                Some(WakeReason::Shutdown) => Poll::Ready(Ok(None)),
                Some(WakeReason::Timeout) => {
                    // The timer is not set for every request: it may have begun before the last one.
                    let ends = *since + *most;
                    if ends <= Instant::now() {
                        return Poll::Ready(Ok(None));
                    }
                    vigil.wake_at(ends);
                    let _told = vigil.poll_wake(context);
                    Poll::Pending
                }
            }
        })
        .await
    }
}
