//! The `RateLimit` header fields of a decision, from the limits that decided it.
//!
//! A program that states quota and window beside its limiter states them twice: `q=100;w=60` beside `r=19`, because the limiter has a
//! burst of 20. Must not know: stores, keys, HTTP libraries.

use tollgate_core::limit::{Limit, RefillPeriod};
use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
use tollgate_http::{InvalidPolicyName, QuotaPolicy, retry_after};

/// The header fields that tell a client where it stands, as in draft-ietf-httpapi-ratelimit-headers-11.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::per_minute(100).burst(20).name("per-key").build()?;
/// let fields = limiter.spend("alice", 1)?.rate_limit_fields();
/// assert_eq!(fields.policy, r#""per-key";q=20;w=12"#);
/// assert_eq!(fields.limit, r#""per-key";r=19;t=1"#);
/// assert_eq!(fields.retry_after, None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct RateLimitFields {
    /// The value of `RateLimit-Policy`. Empty if no limit has a name that a header field can have.
    pub policy: String,
    /// The value of `RateLimit`. Empty if no limit has a name that a header field can have.
    pub limit: String,
    /// The value of `Retry-After` in whole seconds, rounded up. `None` if the call was admitted or waiting does not help.
    pub retry_after: Option<u64>,
}

impl RateLimitFields {
    /// The fields for these limits: the name, the quota, the outcome and the status of each.
    pub(crate) fn new<'a>(
        outcome: Outcome,
        limits: impl Iterator<Item = (&'a str, StatedQuota, Outcome, QuotaStatus)>,
    ) -> Self {
        let mut fields = Self {
            retry_after: retry_after(outcome),
            ..Self::default()
        };
        for (name, quota, outcome, status) in limits {
            // Clients would misread a name that is not sent as it is.
            let Ok(policy) = quota.policy(name, status.limit) else {
                continue;
            };
            append(&mut fields.policy, policy.policy_field());
            append(
                &mut fields.limit,
                &policy.limit_field(outcome, &status, quota.next_unit_after),
            );
        }
        fields
    }

    /// The names and values of the fields that are to be sent.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, String)> {
        let seconds = self.retry_after.map(|seconds| seconds.to_string());
        [
            ("ratelimit-policy", self.policy.clone()),
            ("ratelimit", self.limit.clone()),
            ("retry-after", seconds.unwrap_or_default()),
        ]
        .into_iter()
        .filter(|(_, value)| !value.is_empty())
    }
}

/// Appends an item to a list.
fn append(list: &mut String, item: &str) {
    if !list.is_empty() {
        list.push_str(", ");
    }
    list.push_str(item);
}

/// What header fields state of a limit besides its status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StatedQuota {
    unit: QuotaUnit,
    /// The time in which a used-up quota is full again. Zero if that varies.
    window: Nanos,
    /// The time to the next unit, if nothing remains.
    next_unit_after: Nanos,
    is_concurrency: bool,
}

impl StatedQuota {
    pub(crate) fn new(limit: &Limit, status: &QuotaStatus) -> Self {
        let (window, next_unit_after) = match (limit.bucket(), limit.refill_period()) {
            (Some(bucket), _) => {
                let refill_time = bucket.refill_time();
                (
                    bucket.stated_window(refill_time),
                    bucket.time_to_next_unit(refill_time, status),
                )
            }
            (None, Some(RefillPeriod::Span(span))) => (span, Nanos::ZERO),
            // A month has no fixed length, and a permit is free when it is released.
            (None, _) => (Nanos::ZERO, Nanos::ZERO),
        };
        Self {
            unit: limit.unit(),
            window,
            next_unit_after,
            is_concurrency: limit.refill_period().is_none(),
        }
    }

    fn policy(&self, name: &str, quota: u64) -> Result<QuotaPolicy, InvalidPolicyName> {
        match self.is_concurrency {
            true => QuotaPolicy::concurrent(name, quota),
            false => QuotaPolicy::new(name, quota, self.window, self.unit),
        }
    }
}
