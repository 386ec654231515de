//! The bounds of RLQS: numbers of clients and buckets, and durations.
//!
//! Must not know: how bounds are enforced.

use tollgate_core::Nanos;

use super::shares::AssignmentTimes;

/// The bounds of quota assignments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaBounds {
    /// The lifetime of an assignment in whole seconds, because Envoy ignores fractions. Envoy reports every five seconds, and
    /// each report renews the assignment.
    pub assignment_ttl_seconds: u64,
    /// The longest delay of a message and the response to it together. A larger earlier share stays reserved until a report
    /// arrives later than that.
    pub grace: Nanos,
    /// A bucket that is unused for this long is abandoned.
    pub idle: Nanos,
    /// The same while there are too many buckets.
    pub idle_when_crowded: Nanos,
    /// The most connected clients.
    pub streams: usize,
    /// The most buckets of all clients.
    pub buckets: usize,
    /// The most buckets of one client.
    pub buckets_per_client: usize,
    /// Whether no other process assigned quotas before this one. If it may have, nothing is assigned until all of its
    /// assignments have expired.
    pub is_first_process: bool,
}

impl Default for QuotaBounds {
    fn default() -> Self {
        Self {
            assignment_ttl_seconds: 15,
            grace: Nanos::from_secs(3),
            idle: Nanos::MINUTE,
            idle_when_crowded: Nanos::from_secs(10),
            streams: 1_024,
            buckets: 65_536,
            buckets_per_client: 4_096,
            is_first_process: false,
        }
    }
}

impl QuotaBounds {
    pub(super) const fn spans(&self) -> AssignmentTimes {
        AssignmentTimes {
            ttl: Nanos::from_secs(self.assignment_ttl_seconds),
            grace: self.grace,
        }
    }
}
