//! What went wrong and was survived, counted.

use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of what should be rare. Each only grows.
#[derive(Debug, Default)]
pub struct Counters {
    pub(crate) accept_errors: AtomicU64,
    pub(crate) refused_connections: AtomicU64,
    pub(crate) failed_handshakes: AtomicU64,
    pub(crate) panics: AtomicU64,
}

impl Counters {
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

    /// Panics that ended one request or one connection, and nothing else.
    #[must_use]
    pub fn panics(&self) -> u64 {
        self.panics.load(Ordering::Relaxed)
    }
}

/// One more.
pub(crate) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}
