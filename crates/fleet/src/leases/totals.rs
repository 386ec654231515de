//! What has happened to slices so far, counted.
//!
//! Must not know: who reads it.

/// Counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LeaseTotals {
    /// Requests that were admitted from a slice.
    pub admitted: u64,
    /// Requests that were refused without asking.
    pub denied: u64,
    /// Errands that were run.
    pub requests: u64,
    /// Errands that were not answered.
    pub failed: u64,
    /// Units that were lent.
    pub borrowed: u64,
    /// Spends that others refused and that could not be taken back, because the lender had been told of them.
    pub not_refunded: u64,
    /// Requests of keys for which there was no room.
    pub table_full: u64,
    /// Keys that something is known of.
    pub keys: usize,
}

impl LeaseTotals {
    pub(super) const fn plus(self, other: &Self, keys: usize) -> Self {
        Self {
            admitted: self.admitted.saturating_add(other.admitted),
            denied: self.denied.saturating_add(other.denied),
            requests: self.requests.saturating_add(other.requests),
            failed: self.failed.saturating_add(other.failed),
            borrowed: self.borrowed.saturating_add(other.borrowed),
            not_refunded: self.not_refunded.saturating_add(other.not_refunded),
            table_full: self.table_full.saturating_add(other.table_full),
            keys: self.keys.saturating_add(keys),
        }
    }
}
