//! `X-RateLimit-*`: the fields that nobody specified and everybody has, in their best known forms.
//!
//! All tell the binding limit, and all mean the same by a reset: when what was refused has room, or more is there, or all
//! of it is back. Must not know: the other families.

use crate::answer::RateLimitStatus;
use crate::policy::Scope;
use crate::standing::RateLimitItem;
use crate::text::{push_integer, push_millis_as_seconds, seconds};
use crate::words::{HeaderFields, Merge};

const RESET: &str = "x-ratelimit-reset";

/// The reset as seconds to wait.
pub(super) fn delta(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    with_reset(answer, words, seconds);
}

/// The reset as seconds since 1970, rounded up.
pub(super) fn epoch(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    with_reset(answer, words, |wait| answer.end_of(wait).as_secs_ceil());
}

/// The reset as milliseconds since 1970, rounded up.
pub(super) fn epoch_millis(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    with_reset(answer, words, |wait| answer.end_of(wait).as_millis_ceil());
}

/// A reset in fractions of seconds, both as an instant and as a wait; a bucket; and of a denial, whose it is.
pub(super) fn discord(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = limit_and_remaining(answer, words) else {
        return;
    };
    if let Some(wait) = answer.wait(binding) {
        put(words, RESET, |text| {
            push_millis_as_seconds(text, answer.end_of(wait).as_millis_ceil());
        });
        put(words, "x-ratelimit-reset-after", |text| {
            push_millis_as_seconds(text, wait.as_millis_ceil());
        });
    }
    let policy = binding.policy;
    put(words, "x-ratelimit-bucket", |text| {
        text.extend_from_slice(policy.bucket_id().as_bytes());
    });
    if answer.is_refusal() {
        let scope = policy.scope_of();
        if scope == Scope::Global {
            put(words, "x-ratelimit-global", |text| {
                text.extend_from_slice(b"true");
            });
        }
        put(words, "x-ratelimit-scope", |text| {
            text.extend_from_slice(scope.name().as_bytes());
        });
    }
}

/// What is used as well as what is left, and the limit's name as the resource.
pub(super) fn github(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = limit_and_remaining(answer, words) else {
        return;
    };
    put(words, "x-ratelimit-used", |text| {
        push_integer(text, binding.used());
    });
    if let Some(wait) = answer.wait(binding) {
        put(words, RESET, |text| {
            push_integer(text, answer.end_of(wait).as_secs_ceil());
        });
    }
    put(words, "x-ratelimit-resource", |text| {
        text.extend_from_slice(binding.policy.name().as_bytes());
    });
}

fn with_reset(
    answer: &RateLimitStatus<'_>,
    words: &mut HeaderFields,
    reset: impl FnOnce(tollgate_core::Nanos) -> u64,
) {
    let Some(binding) = limit_and_remaining(answer, words) else {
        return;
    };
    if let Some(wait) = answer.wait(binding) {
        put(words, RESET, |text| push_integer(text, reset(wait)));
    }
}

fn limit_and_remaining<'a>(
    answer: &RateLimitStatus<'a>,
    words: &mut HeaderFields,
) -> Option<&'a RateLimitItem<'a>> {
    let binding = answer.binding()?;
    put(words, "x-ratelimit-limit", |text| {
        push_integer(text, binding.quota);
    });
    put(words, "x-ratelimit-remaining", |text| {
        push_integer(text, binding.remaining());
    });
    Some(binding)
}

fn put(words: &mut HeaderFields, name: &'static str, value: impl FnOnce(&mut Vec<u8>)) {
    words.field(name, Merge::KeepTheirs, value);
}
