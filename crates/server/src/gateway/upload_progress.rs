//! How far the body of a request is on its way to the upstream: the time in which the upstream has to answer counts from there.
//!
//! The body records, and the exchange that waits for the response reads; over HTTP/2 they are two tasks. Must not know: bodies,
//! connections.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::time::Instant;

/// The value of `taken` while the client is awaited.
const WAITING: u64 = u64::MAX;

/// When the upstream took the last piece of a body.
#[derive(Debug)]
pub(super) struct UploadProgress {
    start: Instant,
    /// Nanoseconds since the start, or [`WAITING`].
    taken: AtomicU64,
}

impl UploadProgress {
    /// A body of which the upstream has nothing.
    pub(super) fn new() -> Self {
        Self {
            start: Instant::now(),
            taken: AtomicU64::new(0),
        }
    }

    /// Records that the upstream has taken a piece, or the end.
    pub(super) fn record_taken(&self) {
        let since = u64::try_from(self.start.elapsed().as_nanos());
        let since = since.unwrap_or(WAITING).min(WAITING - 1);
        self.taken.store(since, Ordering::Relaxed);
    }

    /// Records that the upstream could take more than the client has sent.
    pub(super) fn record_waiting(&self) {
        self.taken.store(WAITING, Ordering::Relaxed);
    }

    /// Since when the upstream is awaited: now, if the client is.
    pub(super) fn awaiting_upstream_since(&self) -> Instant {
        match self.taken.load(Ordering::Relaxed) {
            WAITING => Instant::now(),
            since => self.start + Duration::from_nanos(since),
        }
    }
}
