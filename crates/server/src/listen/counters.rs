//! What a listener has seen: connections, answers that are held back, and what went wrong and was survived.

use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_service::metrics::ListenerCounts;

/// What one listener has seen.
#[derive(Debug, Default)]
pub struct ListenerCounters {
    pub(crate) accepted: AtomicU64,
    pub(crate) closed: AtomicU64,
    pub(crate) waiting: AtomicU64,
    pub(crate) accept_errors: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
    pub(crate) failed_handshakes: AtomicU64,
    pub(crate) panics: AtomicU64,
}

impl ListenerCounters {
    /// Connections that were served.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Connections that are open.
    #[must_use]
    pub fn open(&self) -> u64 {
        // Read in this order, so that none has ended that was not accepted.
        let ended = self.closed.load(Ordering::Acquire);
        self.accepted().saturating_sub(ended)
    }

    /// Answers that are held back now until their requests may go on.
    #[must_use]
    pub fn waiting(&self) -> u64 {
        self.waiting.load(Ordering::Relaxed)
    }

    /// An answer is held back until what this returns is dropped.
    pub(crate) fn hold_response(&self) -> HeldResponse<'_> {
        increment(&self.waiting);
        HeldResponse(self)
    }

    /// Connections that the operating system could not hand over.
    #[must_use]
    pub fn accept_errors(&self) -> u64 {
        self.accept_errors.load(Ordering::Relaxed)
    }

    /// Connections closed at once because too many were open.
    #[must_use]
    pub fn refused_connections(&self) -> u64 {
        self.refused_connections.load(Ordering::Relaxed)
    }

    /// Connections that did not get through the handshake of TLS: without a certificate that is trusted, too slow, or not
    /// TLS at all.
    #[must_use]
    pub fn failed_handshakes(&self) -> u64 {
        self.failed_handshakes.load(Ordering::Relaxed)
    }

    /// All of them at this moment.
    #[must_use]
    pub fn counts(&self) -> ListenerCounts {
        ListenerCounts {
            open: self.open(),
            accepted: self.accepted(),
            refused_connections: self.refused_connections(),
            accept_errors: self.accept_errors(),
            failed_handshakes: self.failed_handshakes(),
            panics: self.panics(),
            waiting: self.waiting(),
        }
    }

    /// Panics that ended one request or one connection, and nothing else.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// An answer that is held back.
#[derive(Debug)]
pub(crate) struct HeldResponse<'a>(&'a ListenerCounters);

impl Drop for HeldResponse<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

/// One more.
pub(crate) fn increment(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_held_back_until_it_is_sent_or_its_client_leaves() {
        let counters = ListenerCounters::default();
        let held = (counters.hold_response(), counters.hold_response());
        assert_eq!(counters.waiting(), 2);
        drop(held);
        assert_eq!(counters.waiting(), 0);
    }
}
