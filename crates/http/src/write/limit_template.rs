//! The `RateLimit` field of an admission with everything filled in but its numbers.
//!
//! Must not know: dialects that list one limit, how limits are decided.

use tollgate_core::QuotaStatus;

use super::lists::MAX_LISTED;
use crate::partition::PartitionKey;
use crate::rate_limit_item::RateLimitItem;
use crate::text::{push_integer, seconds};

/// The value of draft 11's `RateLimit` for limits that all admit and have something left: only the numbers are missing.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, QuotaStatus, QuotaUnit};
/// use tollgate_http::{LimitTemplate, QuotaPolicy, RateLimitItem};
///
/// let policy = QuotaPolicy::new("per-user", 100, Nanos::MINUTE, QuotaUnit::Requests)?;
/// let status = QuotaStatus { limit: 100, remaining: 42, reset_after: Nanos::from_millis(34_800) };
/// let items = [RateLimitItem::new(&policy, Outcome::Allow, &status)];
/// let template = LimitTemplate::new(&items).expect("the limit has a reset");
/// let mut value = Vec::new();
/// template.write([&status], &mut value);
/// assert_eq!(value, br#""per-user";r=42;t=35"#);
/// # Ok::<(), tollgate_http::InvalidPolicyName>(())
/// ```
#[derive(Clone, Debug)]
pub struct LimitTemplate {
    /// The text before the remaining quota of each limit.
    before: Box<[Box<[u8]>]>,
    /// The text after the last number.
    after: Box<[u8]>,
}

impl LimitTemplate {
    /// The template of these limits. `None` if one has no reset, or if they are too many for one field.
    #[must_use]
    pub fn new(items: &[RateLimitItem<'_>]) -> Option<Self> {
        let is_concurrent = |item: &RateLimitItem<'_>| item.policy.is_concurrent();
        if items.is_empty() || items.len() > MAX_LISTED || items.iter().any(is_concurrent) {
            return None;
        }
        let partition = |item: &RateLimitItem<'_>| {
            let parameter = item.partition.as_ref().map(PartitionKey::as_parameter);
            parameter
                .map_or(&[][..], |parameter| &parameter[..])
                .to_vec()
        };
        let mut before = Vec::with_capacity(items.len());
        let mut text = Vec::new();
        for item in items {
            text.extend_from_slice(item.policy.item_prefix().as_bytes());
            before.push(text.into());
            text = partition(item);
            text.extend_from_slice(b", ");
        }
        text.truncate(text.len().saturating_sub(2));
        Some(Self {
            before: before.into(),
            after: text.into(),
        })
    }

    /// Appends the value with the numbers of these limits, in their order.
    #[inline]
    pub fn write<'a>(
        &self,
        statuses: impl IntoIterator<Item = &'a QuotaStatus>,
        out: &mut Vec<u8>,
    ) {
        for (before, status) in self.before.iter().zip(statuses) {
            out.extend_from_slice(before);
            push_integer(out, status.remaining.min(status.limit));
            out.extend_from_slice(b";t=");
            push_integer(out, seconds(status.reset_after));
        }
        out.extend_from_slice(&self.after);
    }
}
