//! Where one limit stands after a decision: what a transport hands in, and nothing of how it was decided.
//!
//! Must not know: dialects.

use tollgate_core::{Nanos, Outcome, QuotaStatus};

use crate::partition::PartitionKey;
use crate::quota_policy::QuotaPolicy;

/// One limit's word on one request, and what is left of it afterwards.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct RateLimitItem<'a> {
    /// What stays the same about it.
    pub policy: &'a QuotaPolicy,
    /// The quota this time: the policy's own, unless the caller has another one.
    pub quota: u64,
    /// The window of that quota.
    pub window: Nanos,
    /// What the limit says by itself, whatever others say.
    pub outcome: Outcome,
    /// What is left.
    pub remaining: u64,
    /// Time until it is as if it had never been used.
    pub reset_after: Nanos,
    /// Where nothing is left: time until one more unit is there. Zero if that is not known; then the reset is told.
    pub next_unit_after: Nanos,
    /// What has been used, where that is not what is missing from the quota.
    pub used: Option<u64>,
    /// What this request costs here.
    pub cost: Option<u64>,
    /// Who is counted.
    pub partition: Option<PartitionKey>,
}

impl<'a> RateLimitItem<'a> {
    /// A limit with the policy's quota, from what it answered.
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

    /// Another quota than the policy's: a tier, an override, one that was computed. It is written anew each time.
    #[must_use]
    pub const fn with_quota(mut self, quota: u64, window: Nanos) -> Self {
        self.quota = quota;
        self.window = window;
        self
    }

    /// The time until one more unit is there, for where nothing is left.
    #[must_use]
    pub const fn with_next_unit_after(mut self, more_after: Nanos) -> Self {
        self.next_unit_after = more_after;
        self
    }

    /// What this request costs here.
    #[must_use]
    pub const fn with_cost(mut self, cost: u64) -> Self {
        self.cost = Some(cost);
        self
    }

    /// What has been used, where that is not what is missing from the quota.
    #[must_use]
    pub const fn with_used(mut self, used: u64) -> Self {
        self.used = Some(used);
        self
    }

    /// Who is counted.
    #[must_use]
    pub const fn with_partition(mut self, key: PartitionKey) -> Self {
        self.partition = Some(key);
        self
    }

    /// What is left, never more than there is of it: a quota that was lowered leaves states behind that say otherwise.
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

    /// Whether the policy's own words fit this time.
    pub(crate) fn has_policy_quota(&self) -> bool {
        self.quota == self.policy.quota() && self.window == self.policy.window()
    }
}
