//! The status of one limit after a decision, as a transport passes it in.
//!
//! Must not know: dialects, how the limit was decided.

use tollgate_core::{Nanos, Outcome, QuotaStatus};

use crate::partition::PartitionKey;
use crate::quota_policy::QuotaPolicy;

/// One limit's outcome for a request, and its remaining quota.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RateLimitItem<'a> {
    /// The limit's policy.
    pub policy: &'a QuotaPolicy,
    /// The quota that applies: the policy's, unless the caller has another.
    pub quota: u64,
    /// The window of that quota.
    pub window: Nanos,
    /// The outcome of this limit alone.
    pub outcome: Outcome,
    /// The remaining quota.
    pub remaining: u64,
    /// Time until the quota is full.
    pub reset_after: Nanos,
    /// If nothing remains: time until the next unit is available. Zero if that is not known; then `reset_after` is sent.
    pub next_unit_after: Nanos,
    /// The used quota, if it is not `quota - remaining`.
    pub used: Option<u64>,
    /// The cost of this request.
    pub cost: Option<u64>,
    /// The partition that is counted.
    pub partition: Option<PartitionKey>,
}

impl<'a> RateLimitItem<'a> {
    /// A limit with the policy's quota, its outcome and its status.
    #[must_use]
    pub const fn new(policy: &'a QuotaPolicy, outcome: Outcome, status: &QuotaStatus) -> Self {
        Self {
            policy,
            quota: policy.quota(),
            window: policy.window(),
            outcome,
            remaining: status.remaining,
            reset_after: status.reset_after,
            next_unit_after: Nanos::ZERO,
            used: None,
            cost: None,
            partition: None,
        }
    }

    /// Replaces the policy's quota: by a tier's, an override's or a computed one. It is formatted for each response.
    #[must_use]
    pub const fn with_quota(mut self, quota: u64, window: Nanos) -> Self {
        self.quota = quota;
        self.window = window;
        self
    }

    /// Sets the time until the next unit is available.
    #[must_use]
    pub const fn with_next_unit_after(mut self, more_after: Nanos) -> Self {
        self.next_unit_after = more_after;
        self
    }

    /// Sets the cost of this request.
    #[must_use]
    pub const fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// Sets the used quota, if it is not `quota - remaining`.
    #[must_use]
    pub const fn with_used(mut self, used: u64) -> Self {
        self.used = Some(used);
        self
    }

    /// Sets the partition that is counted.
    #[must_use]
    pub const fn with_partition(mut self, key: PartitionKey) -> Self {
        self.partition = Some(key);
        self
    }

    /// The remaining quota, at most the quota: after the quota was lowered, a state may hold more.
    pub(crate) fn remaining(&self) -> u64 {
        self.remaining.min(self.quota)
    }

    pub(crate) fn used(&self) -> u64 {
        self.used
            .unwrap_or_else(|| self.quota.saturating_sub(self.remaining))
    }

    pub(crate) const fn is_denied(&self) -> bool {
        !self.outcome.is_admitted()
    }

    /// Whether the policy's own quota applies, so that its formatted item can be used.
    pub(crate) fn has_policy_quota(&self) -> bool {
        self.quota == self.policy.quota() && self.window == self.policy.window()
    }
}
