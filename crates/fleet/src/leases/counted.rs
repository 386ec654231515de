//! What has happened to slices so far, counted.
//!
//! Must not know: who reads it.

/// Counts since the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LeaseTotals {
    /// Requests that were admitted from a slice.
    pub spent: u64,
    /// Requests that were refused without asking.
    pub denied: u64,
    /// Errands that were run.
    pub errands: u64,
    /// Errands that were not answered.
    pub failed: u64,
    /// Units that were lent.
    pub borrowed: u64,
    /// Spends that others refused and that could not be taken back, because the lender had been told of them.
    pub kept: u64,
    /// Requests of keys for which there was no room.
    pub crowded: u64,
    /// Keys that something is known of.
    pub keys: usize,
}

impl LeaseTotals {
    pub(super) const fn and(self, other: &Self, keys: usize) -> Self {
        Self {
            spent: self.spent.saturating_add(other.spent),
            denied: self.denied.saturating_add(other.denied),
            errands: self.errands.saturating_add(other.errands),
            failed: self.failed.saturating_add(other.failed),
            borrowed: self.borrowed.saturating_add(other.borrowed),
            kept: self.kept.saturating_add(other.kept),
            crowded: self.crowded.saturating_add(other.crowded),
            keys: self.keys.saturating_add(keys),
        }
    }
}
