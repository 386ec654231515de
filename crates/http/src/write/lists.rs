//! The dialects that list every limit by name: draft-11 and the one after it.
//!
//! Must not know: the other families.

use crate::header_fields::{HeaderFields, Merge};
use crate::quota_policy::push_policy_item;
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};

/// So many limits fit into fields that every proxy lets through.
pub(super) const MAX_LISTED: usize = 16;

pub(super) fn draft_11(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    words.push("ratelimit-policy", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            let policy = standing.policy;
            push_policy(text, standing, policy.policy_field(), policy.quoted_name());
            push_partition(text, standing);
        });
    });
    words.push("ratelimit", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            push_limit_item(text, answer, standing);
        });
    });
}

/// The letters that the editors chose after draft-11: `a` for what is available, `w` for the effective window, `c` for
/// this request's cost, names without quotes where they can do without, and a field that explains partitions.
pub(super) fn next(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    words.push("ratelimit-policy", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            let policy = standing.policy;
            push_policy(text, standing, policy.next_item(), policy.next_name());
            push_unexplained_partition(text, standing);
        });
    });
    words.push("ratelimit", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            text.extend_from_slice(standing.policy.next_name().as_bytes());
            text.extend_from_slice(b";a=");
            push_integer(text, standing.remaining());
            push_wait(text, answer, standing, b";w=");
            if let Some(cost) = standing.cost {
                text.extend_from_slice(b";c=");
                push_integer(text, cost);
            }
            push_unexplained_partition(text, standing);
        });
    });
    words.push("ratelimit-partition", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            text.extend_from_slice(standing.policy.dimensions().as_bytes());
        });
    });
}

/// One item of draft-11's `RateLimit`.
pub(crate) fn push_limit_item(
    text: &mut Vec<u8>,
    answer: &RateLimitStatus<'_>,
    standing: &RateLimitItem<'_>,
) {
    text.extend_from_slice(standing.policy.item_prefix().as_bytes());
    push_integer(text, standing.remaining());
    push_wait(text, answer, standing, b";t=");
    push_partition(text, standing);
}

/// The members that `push` writes, with a comma and a space between them. A member may be empty, and is left out then.
pub(super) fn list(
    answer: &RateLimitStatus<'_>,
    text: &mut Vec<u8>,
    push: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    let standings = answer.items();
    let begin = text.len();
    let mut push = |standing: &RateLimitItem<'_>| {
        let before = text.len();
        if before > begin {
            text.extend_from_slice(b", ");
        }
        let start = text.len();
        push(text, standing);
        if text.len() == start {
            text.truncate(before);
        }
    };
    if standings.len() <= MAX_LISTED {
        standings.iter().for_each(push);
        return;
    }
    let binding = answer.binding_index().unwrap_or(0);
    // One place is kept for the binding limit, which may be anywhere.
    let first = if binding < MAX_LISTED {
        MAX_LISTED
    } else {
        MAX_LISTED - 1
    };
    for (index, standing) in standings.iter().enumerate() {
        if index < first || index == binding {
            push(standing);
        }
    }
}

/// The policy's item as it was written once, or anew for a quota of its own.
fn push_policy(text: &mut Vec<u8>, standing: &RateLimitItem<'_>, item: &str, name: &str) {
    if standing.has_policy_quota() {
        text.extend_from_slice(item.as_bytes());
    } else {
        let unit = standing.policy.unit();
        push_policy_item(text, name, standing.quota, unit, standing.window);
    }
}

fn push_wait(
    text: &mut Vec<u8>,
    answer: &RateLimitStatus<'_>,
    standing: &RateLimitItem<'_>,
    key: &[u8],
) {
    // When a place is free depends on those who hold one: there is no time to name.
    if standing.policy.is_concurrent() {
        return;
    }
    if let Some(wait) = answer.wait(standing) {
        text.extend_from_slice(key);
        push_integer(text, seconds(wait));
    }
}

fn push_partition(text: &mut Vec<u8>, standing: &RateLimitItem<'_>) {
    if let Some(partition) = &standing.partition {
        text.extend_from_slice(b";pk=:");
        text.extend_from_slice(partition.as_base64());
        text.push(b':');
    }
}

/// Where dimensions are named, a client expects their plain values in the key. A digest would only mislead it.
fn push_unexplained_partition(text: &mut Vec<u8>, standing: &RateLimitItem<'_>) {
    if standing.policy.dimensions().is_empty() {
        push_partition(text, standing);
    }
}
