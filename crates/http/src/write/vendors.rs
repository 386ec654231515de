//! `X-RateLimit-*`, a de-facto standard without a specification, in its best known variants.
//!
//! All send the binding limit. The reset is the wait of a denial, the time until the next unit, or the time until the quota
//! is full. Must not know: the other dialects.

use crate::header_fields::{HeaderFields, Merge};
use crate::quota_policy::Scope;
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, push_millis_as_seconds, seconds};

const RESET: &str = "x-ratelimit-reset";

/// The reset as a delay in seconds.
pub(super) fn delta(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    push_with_reset(status, fields, seconds);
}

/// The reset as seconds since 1970, rounded up.
pub(super) fn epoch(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    push_with_reset(status, fields, |wait| {
        status.end_of_wait(wait).as_secs_ceil()
    });
}

/// The reset as milliseconds since 1970, rounded up.
pub(super) fn epoch_millis(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    push_with_reset(status, fields, |wait| {
        status.end_of_wait(wait).as_millis_ceil()
    });
}

/// The reset in fractions of seconds, as a time and as a delay; a bucket; for a denial, its scope.
pub(super) fn discord(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = push_limit_and_remaining(status, fields) else {
        return;
    };
    if let Some(wait) = status.wait(binding) {
        push_field(fields, RESET, |text| {
            push_millis_as_seconds(text, status.end_of_wait(wait).as_millis_ceil());
        });
        push_field(fields, "x-ratelimit-reset-after", |text| {
            push_millis_as_seconds(text, wait.as_millis_ceil());
        });
    }
    let policy = binding.policy;
    push_field(fields, "x-ratelimit-bucket", |text| {
        text.extend_from_slice(policy.bucket_id().as_bytes());
    });
    if status.is_refusal() {
        let scope = policy.scope();
        if scope == Scope::Global {
            push_field(fields, "x-ratelimit-global", |text| {
                text.extend_from_slice(b"true");
            });
        }
        push_field(fields, "x-ratelimit-scope", |text| {
            text.extend_from_slice(scope.name().as_bytes());
        });
    }
}

/// The used and the remaining quota, and the limit's name as the resource.
pub(super) fn github(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = push_limit_and_remaining(status, fields) else {
        return;
    };
    push_field(fields, "x-ratelimit-used", |text| {
        push_integer(text, binding.used());
    });
    if let Some(wait) = status.wait(binding) {
        push_field(fields, RESET, |text| {
            push_integer(text, status.end_of_wait(wait).as_secs_ceil());
        });
    }
    push_field(fields, "x-ratelimit-resource", |text| {
        text.extend_from_slice(binding.policy.name().as_bytes());
    });
}

fn push_with_reset(
    status: &RateLimitStatus<'_>,
    fields: &mut HeaderFields,
    reset: impl FnOnce(tollgate_core::Nanos) -> u64,
) {
    let Some(binding) = push_limit_and_remaining(status, fields) else {
        return;
    };
    if let Some(wait) = status.wait(binding) {
        push_field(fields, RESET, |text| push_integer(text, reset(wait)));
    }
}

fn push_limit_and_remaining<'a>(
    status: &RateLimitStatus<'a>,
    fields: &mut HeaderFields,
) -> Option<&'a RateLimitItem<'a>> {
    let binding = status.binding()?;
    push_field(fields, "x-ratelimit-limit", |text| {
        push_integer(text, binding.quota);
    });
    push_field(fields, "x-ratelimit-remaining", |text| {
        push_integer(text, binding.remaining());
    });
    Some(binding)
}

fn push_field(fields: &mut HeaderFields, name: &'static str, value: impl FnOnce(&mut Vec<u8>)) {
    fields.push(name, Merge::KeepExisting, value);
}
