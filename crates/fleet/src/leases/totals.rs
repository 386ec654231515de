//! Totals of leases.
//!
//! Must not know: who reads them.

/// Totals since the process started.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct LeaseTotals {
    /// Requests that were admitted from a lease.
    pub admitted: u64,
    /// Requests that were denied without asking the broker.
    pub denied: u64,
    /// Requests to the broker.
    pub requests: u64,
    /// Requests to the broker without a reply.
    pub failed: u64,
    /// Granted units.
    pub borrowed: u64,
    /// Charges of requests that another limit denied and that could not be refunded, because they were reported
    /// already.
    pub not_refunded: u64,
    /// Requests of keys that the table had no room for.
    pub table_full: u64,
    /// Keys in the table.
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
