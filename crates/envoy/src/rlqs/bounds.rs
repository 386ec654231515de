//! What clients of quotas are allowed, and how long things last.
//!
//! Must not know: how any of it is enforced.

use tollgate_core::Nanos;

use super::shares::AssignmentTimes;

/// How quotas are given out, and to how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaBounds {
    /// How long an assignment is in force, in whole seconds because Envoy reads no more than those. Envoy reports every
    /// five seconds, and each report renews it.
    pub assignment_ttl_seconds: u64,
    /// A message and what is written after it was read take no longer than this together. What a client was sent before is
    /// held until a report comes later than that.
    pub grace: Nanos,
    /// A bucket that was not used for so long is abandoned.
    pub idle: Nanos,
    /// The same while there is no room for others.
    pub idle_when_crowded: Nanos,
    /// Clients at the same time.
    pub streams: usize,
    /// Buckets of all clients, and of one.
    pub buckets: usize,
    /// See [`buckets`](Self::buckets).
    pub buckets_per_client: usize,
    /// Whether nobody gave out quotas before this process. Without this nothing is given out until all of what somebody may
    /// have given out has expired.
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
