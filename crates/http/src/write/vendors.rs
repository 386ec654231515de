//! `X-RateLimit-*`: the fields that nobody specified and everybody has, in their best known forms.
//!
//! All tell the binding limit, and all mean the same by a reset: when what was refused has room, or more is there, or all
//! of it is back. Must not know: the other families.

use crate::header_fields::{HeaderFields, Merge};
use crate::quota_policy::Scope;
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, push_millis_as_seconds, seconds};

const RESET: &str = "x-ratelimit-reset";

/// The reset as seconds to wait.
pub(super) fn delta(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    push_with_reset(answer, words, seconds);
}

/// The reset as seconds since 1970, rounded up.
pub(super) fn epoch(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    push_with_reset(answer, words, |wait| {
        answer.end_of_wait(wait).as_secs_ceil()
    });
}

/// The reset as milliseconds since 1970, rounded up.
pub(super) fn epoch_millis(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    push_with_reset(answer, words, |wait| {
        answer.end_of_wait(wait).as_millis_ceil()
    });
}

/// A reset in fractions of seconds, both as an instant and as a wait; a bucket; and of a denial, whose it is.
pub(super) fn discord(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = push_limit_and_remaining(answer, words) else {
        return;
    };
    if let Some(wait) = answer.wait(binding) {
        push_field(words, RESET, |text| {
            push_millis_as_seconds(text, answer.end_of_wait(wait).as_millis_ceil());
        });
        push_field(words, "x-ratelimit-reset-after", |text| {
            push_millis_as_seconds(text, wait.as_millis_ceil());
        });
    }
    let policy = binding.policy;
    push_field(words, "x-ratelimit-bucket", |text| {
        text.extend_from_slice(policy.bucket_id().as_bytes());
    });
    if answer.is_refusal() {
        let scope = policy.scope();
        if scope == Scope::Global {
            push_field(words, "x-ratelimit-global", |text| {
                text.extend_from_slice(b"true");
            });
        }
        push_field(words, "x-ratelimit-scope", |text| {
            text.extend_from_slice(scope.name().as_bytes());
        });
    }
}

/// What is used as well as what is left, and the limit's name as the resource.
pub(super) fn github(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = push_limit_and_remaining(answer, words) else {
        return;
    };
    push_field(words, "x-ratelimit-used", |text| {
        push_integer(text, binding.used());
    });
    if let Some(wait) = answer.wait(binding) {
        push_field(words, RESET, |text| {
            push_integer(text, answer.end_of_wait(wait).as_secs_ceil());
        });
    }
    push_field(words, "x-ratelimit-resource", |text| {
        text.extend_from_slice(binding.policy.name().as_bytes());
    });
}

fn push_with_reset(
    answer: &RateLimitStatus<'_>,
    words: &mut HeaderFields,
    reset: impl FnOnce(tollgate_core::Nanos) -> u64,
) {
    let Some(binding) = push_limit_and_remaining(answer, words) else {
        return;
    };
    if let Some(wait) = answer.wait(binding) {
        push_field(words, RESET, |text| push_integer(text, reset(wait)));
    }
}

fn push_limit_and_remaining<'a>(
    answer: &RateLimitStatus<'a>,
    words: &mut HeaderFields,
) -> Option<&'a RateLimitItem<'a>> {
    let binding = answer.binding()?;
    push_field(words, "x-ratelimit-limit", |text| {
        push_integer(text, binding.quota);
    });
    push_field(words, "x-ratelimit-remaining", |text| {
        push_integer(text, binding.remaining());
    });
    Some(binding)
}

fn push_field(words: &mut HeaderFields, name: &'static str, value: impl FnOnce(&mut Vec<u8>)) {
    words.push(name, Merge::KeepExisting, value);
}
