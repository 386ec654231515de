//! Counters of one listener: connections, delayed responses, errors and panics.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_service::metrics::ListenerCounts;

/// The counters of one listener.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
    pub(crate) evicted_connections: AtomicU64,
    pub(crate) auth_failures: AtomicU64,
    pub(crate) failed_handshakes: AtomicU64,
    pub(crate) refused_buffers: AtomicU64,
    pub(crate) floods: AtomicU64,
    pub(crate) panics: AtomicU64,
}

impl ListenerCounters {
    /// Connections accepted and served.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Open connections.
    #[must_use]
    pub fn open(&self) -> u64 {
        // Load `closed` before `accepted`, so that `closed` is never the larger one.
        let ended = self.closed.load(Ordering::Acquire);
        self.accepted().saturating_sub(ended)
    }

    /// Responses that are held back now because their limit made them wait.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Counts a response as held back until the returned guard is dropped.
    pub(crate) fn hold_response(&self) -> HeldResponse<'_> {
        increment(&self.waiting);
        HeldResponse(self)
    }

    /// Errors of the `accept` call.
    #[must_use]
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Connections closed immediately because `max_connections` were open and none of them could give way.
    #[must_use]
    pub fn refused_connections(&self) -> u64 {
        self.refused_connections.load(Ordering::Relaxed)
    }

    /// Connections without an answered request that gave way to a newer one, because too many were open.
    #[must_use]
    pub fn evicted_connections(&self) -> u64 {
        self.evicted_connections.load(Ordering::Relaxed)
    }

    /// Wrong tokens or passwords.
    #[must_use]
    pub fn auth_failures(&self) -> u64 {
        self.auth_failures.load(Ordering::Relaxed)
    }

    /// Connections whose TLS handshake failed (no trusted client certificate, too slow, or not TLS), or whose PROXY header did.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.failed_handshakes.load(Ordering::Relaxed)
    }

    /// Requests refused and connections closed because the [`BufferBudget`](super::BufferBudget) had no room.
    #[must_use]
    pub fn refused_buffers(&self) -> u64 {
        self.refused_buffers.load(Ordering::Relaxed)
    }

    /// Connections closed because they sent too many HTTP/2 frames that ask for nothing.
    #[must_use]
    pub fn floods(&self) -> u64 {
        self.floods.load(Ordering::Relaxed)
    }

    /// A snapshot of all counters.
    #[must_use]
    pub fn counts(&self) -> ListenerCounts {
        ListenerCounts {
            open: self.open(),
            accepted: self.accepted(),
            refused_connections: self.refused_connections(),
            evicted_connections: self.evicted_connections(),
            auth_failures: self.auth_failures(),
            accept_errors: self.accept_errors(),
            failed_handshakes: self.failed_handshakes(),
            refused_buffers: self.refused_buffers(),
            floods: self.floods(),
            panics: self.panics(),
            waiting: self.waiting(),
        }
    }

    /// Panics. Each ended one request or one connection and nothing else.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// Guard of one response that is held back.
#[derive(Debug)]
pub(crate) struct HeldResponse<'a>(&'a ListenerCounters);

impl Drop for HeldResponse<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Adds one to a counter.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_response_is_counted_until_its_guard_is_dropped() {
        let counters = ListenerCounters::default();
        let held = (counters.hold_response(), counters.hold_response());
        assert_eq!(counters.waiting(), 2);
        drop(held);
        assert_eq!(counters.waiting(), 0);
    }
}
