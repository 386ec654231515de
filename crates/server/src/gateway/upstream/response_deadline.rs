//! When the head of a response must have arrived: a while after the upstream has taken the request.
//!
//! The time of a slow client does not count, its own timers do. Must not know: connections, HTTP.

use std::sync::Arc;
use std::task::Context;
use std::time::Duration;

use tokio::time::Instant;

use crate::gateway::lazy_timer::LazyTimer;
use crate::gateway::upload_progress::UploadProgress;

/// When the head of a response must have arrived.
#[derive(Debug)]
pub(super) struct ResponseDeadline {
    start: Instant,
    timeout: Duration,
    /// When the whole exchange must have ended.
    total: Option<Instant>,
    /// `None` if the request has no body.
    upload: Option<Arc<UploadProgress>>,
}

impl ResponseDeadline {
    /// The deadline of a request that is sent from now on.
    pub(super) fn new(
        timeout: Duration,
        total: Option<Instant>,
        upload: Option<Arc<UploadProgress>>,
    ) -> Self {
        Self {
            start: Instant::now(),
            timeout,
            total,
            upload,
        }
    }

    /// The deadline if there is no body: of a connection, and of plain requests.
    pub(super) fn without_body(&self) -> Instant {
        self.after(self.start)
    }

    /// Whether it has passed. Otherwise the task is woken when it has, or earlier.
    pub(super) fn has_passed(&self, timer: &mut LazyTimer, context: &mut Context<'_>) -> bool {
        let upload = self.upload.as_ref();
        let since = upload.map_or(self.start, |upload| upload.awaiting_upstream_since());
        timer.has_passed(self.after(since), context)
    }

    fn after(&self, since: Instant) -> Instant {
        let at = since + self.timeout;
        self.total.map_or(at, |total| total.min(at))
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::{Poll, Waker};

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// How long it takes from now on.
    async fn left(deadline: &ResponseDeadline, timer: &mut LazyTimer) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| match deadline.has_passed(timer, context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        begun.elapsed()
    }

    /// The upload of a body was part of the time, so that long uploads were answered with 504.
    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_last_piece_that_the_upstream_took() {
        let upload = Arc::new(UploadProgress::new());
        let deadline = ResponseDeadline::new(10 * SECOND, None, Some(Arc::clone(&upload)));
        let mut timer = LazyTimer::default();
        let mut look = || {
            let mut context = Context::from_waker(Waker::noop());
            deadline.has_passed(&mut timer, &mut context)
        };
        advance(8 * SECOND).await;
        upload.record_taken();
        advance(8 * SECOND).await;
        assert!(!look(), "a piece was taken");
        upload.record_waiting();
        advance(100 * SECOND).await;
        assert!(!look(), "the client is awaited");
        // The body ends in another task, which wakes nobody here.
        advance(3 * SECOND).await;
        upload.record_taken();
        assert_eq!(left(&deadline, &mut timer).await, 10 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn without_a_body_it_counts_from_the_start_and_the_whole_exchange_has_an_end() {
        let mut timer = LazyTimer::default();
        let deadline = ResponseDeadline::new(10 * SECOND, None, None);
        advance(SECOND).await;
        assert_eq!(left(&deadline, &mut timer).await, 9 * SECOND);
        let total = Some(Instant::now() + 3 * SECOND);
        let upload = Some(Arc::new(UploadProgress::new()));
        let deadline = ResponseDeadline::new(10 * SECOND, total, upload);
        assert_eq!(left(&deadline, &mut timer).await, 3 * SECOND);
    }
}
