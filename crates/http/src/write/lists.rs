//! The dialects that list every limit by name: `draft-11` and `next`.
//!
//! Must not know: the other dialects.

use crate::header_fields::{HeaderFields, Merge};
use crate::quota_policy::push_policy_item;
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};

/// The most limits in one field, so that every proxy accepts its length.
pub(super) const MAX_LISTED: usize = 16;

pub(super) fn draft_11(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    fields.push("ratelimit-policy", Merge::Append, |text| {
        list(status, text, |text, item| {
            let policy = item.policy;
            push_policy(text, item, policy.policy_field(), policy.quoted_name());
            push_partition(text, item);
        });
    });
    fields.push("ratelimit", Merge::Append, |text| {
        list(status, text, |text, item| {
            push_limit_item(text, status, item);
        });
    });
}

/// The parameters of the editors' copy after draft 11: `a` is the available quota, `w` the effective window, `c` this request's
/// cost. Names that are Tokens have no quotes, and `RateLimit-Partition` lists the partition dimensions.
pub(super) fn next(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    fields.push("ratelimit-policy", Merge::Append, |text| {
        list(status, text, |text, item| {
            let policy = item.policy;
            push_policy(text, item, policy.next_item(), policy.next_name());
            push_unexplained_partition(text, item);
        });
    });
    fields.push("ratelimit", Merge::Append, |text| {
        list(status, text, |text, item| {
            text.extend_from_slice(item.policy.next_name().as_bytes());
            text.extend_from_slice(b";a=");
            push_integer(text, item.remaining());
            push_wait(text, status, item, b";w=");
            if let Some(cost) = item.cost {
                text.extend_from_slice(b";c=");
                push_integer(text, cost);
            }
            push_unexplained_partition(text, item);
        });
    });
    fields.push("ratelimit-partition", Merge::Append, |text| {
        list(status, text, |text, item| {
            text.extend_from_slice(item.policy.dimensions().as_bytes());
        });
    });
}

/// Appends one item of draft 11's `RateLimit`.
pub(crate) fn push_limit_item(
    text: &mut Vec<u8>,
    status: &RateLimitStatus<'_>,
    item: &RateLimitItem<'_>,
) {
    text.extend_from_slice(item.policy.item_prefix().as_bytes());
    push_integer(text, item.remaining());
    push_wait(text, status, item, b";t=");
    push_partition(text, item);
}

/// Appends the members that `push` writes, separated by a comma and a space. Empty members are left out.
pub(super) fn list(
    status: &RateLimitStatus<'_>,
    text: &mut Vec<u8>,
    push: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    let items = status.items();
    let begin = text.len();
    let mut push = |item: &RateLimitItem<'_>| {
        let before = text.len();
        if before > begin {
            text.extend_from_slice(b", ");
        }
        let start = text.len();
        push(text, item);
        if text.len() == start {
            text.truncate(before);
        }
    };
    if items.len() <= MAX_LISTED {
        items.iter().for_each(push);
        return;
    }
    let binding = status.binding_index().unwrap_or(0);
    // One member is reserved for the binding limit, which may be anywhere in the list.
    let first = if binding < MAX_LISTED {
        MAX_LISTED
    } else {
        MAX_LISTED - 1
    };
    for (index, item) in items.iter().enumerate() {
        if index < first || index == binding {
            push(item);
        }
    }
}

/// Appends the policy's formatted item, or formats it for another quota.
fn push_policy(text: &mut Vec<u8>, item: &RateLimitItem<'_>, formatted: &str, name: &str) {
    if item.has_policy_quota() {
        text.extend_from_slice(formatted.as_bytes());
    } else {
        let unit = item.policy.unit();
        push_policy_item(text, name, item.quota, unit, item.window);
    }
}

fn push_wait(
    text: &mut Vec<u8>,
    status: &RateLimitStatus<'_>,
    item: &RateLimitItem<'_>,
    key: &[u8],
) {
    // A concurrency limit has no reset: it depends on when requests end.
    if item.policy.is_concurrent() {
        return;
    }
    if let Some(wait) = status.wait(item) {
        text.extend_from_slice(key);
        push_integer(text, seconds(wait));
    }
}

fn push_partition(text: &mut Vec<u8>, item: &RateLimitItem<'_>) {
    if let Some(partition) = &item.partition {
        text.extend_from_slice(partition.as_parameter());
    }
}

/// If dimensions are sent, clients expect plain values as the partition key, so no digest is sent.
fn push_unexplained_partition(text: &mut Vec<u8>, item: &RateLimitItem<'_>) {
    if item.policy.dimensions().is_empty() {
        push_partition(text, item);
    }
}
