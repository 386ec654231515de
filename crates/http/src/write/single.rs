//! The earlier drafts, which tell where one limit stands: the binding one. Policies are listed, by number.
//!
//! Must not know: the other families.

use super::lists::list;
use crate::header_fields::{HeaderFields, Merge};
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};

/// One field with a dictionary. It needs a reset, so a limit that names no time has one of zero.
pub(super) fn draft_07(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.push("ratelimit", Merge::KeepExisting, |text| {
        text.extend_from_slice(b"limit=");
        push_integer(text, binding.quota);
        text.extend_from_slice(b", remaining=");
        push_integer(text, binding.remaining());
        text.extend_from_slice(b", reset=");
        push_integer(text, answer.wait(binding).map_or(0, seconds));
    });
    push_policies(answer, words);
}

/// Three fields for the limit, and the policies in a fourth.
pub(super) fn draft_06(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.push("ratelimit-limit", Merge::KeepExisting, |text| {
        push_integer(text, binding.quota);
    });
    push_remaining_and_reset(
        answer,
        words,
        binding,
        ["ratelimit-remaining", "ratelimit-reset"],
    );
    push_policies(answer, words);
}

/// The limit, and behind it the policies.
pub(super) fn draft_03(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.push("ratelimit-limit", Merge::KeepExisting, |text| {
        push_limit_and_policies(answer, text, binding, |_, _| {});
    });
    push_remaining_and_reset(
        answer,
        words,
        binding,
        ["ratelimit-remaining", "ratelimit-reset"],
    );
}

/// The draft before there were drafts of the working group, which Envoy speaks: `X-` and the policies' names.
pub(super) fn envoy(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.push("x-ratelimit-limit", Merge::KeepExisting, |text| {
        push_limit_and_policies(answer, text, binding, |text, standing| {
            text.extend_from_slice(b";name=");
            text.extend_from_slice(standing.policy.quoted_name().as_bytes());
        });
    });
    push_remaining_and_reset(
        answer,
        words,
        binding,
        ["x-ratelimit-remaining", "x-ratelimit-reset"],
    );
}

fn push_remaining_and_reset(
    answer: &RateLimitStatus<'_>,
    words: &mut HeaderFields,
    binding: &RateLimitItem<'_>,
    [remaining, reset]: [&'static str; 2],
) {
    let left = binding.remaining();
    words.push(remaining, Merge::KeepExisting, |text| {
        push_integer(text, left);
    });
    if let Some(wait) = answer.wait(binding) {
        words.push(reset, Merge::KeepExisting, |text| {
            push_integer(text, seconds(wait));
        });
    }
}

fn push_policies(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    words.push("ratelimit-policy", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            push_policy(text, standing, |_, _| {});
        });
    });
}

fn push_limit_and_policies(
    answer: &RateLimitStatus<'_>,
    text: &mut Vec<u8>,
    binding: &RateLimitItem<'_>,
    extra: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    push_integer(text, binding.quota);
    text.extend_from_slice(b", ");
    let start = text.len();
    list(answer, text, |text, standing| {
        push_policy(text, standing, &extra);
    });
    if text.len() == start {
        text.truncate(start - 2);
    }
}

/// A quota and its window, which these drafts insist on: a limit without one has no policy here.
fn push_policy(
    text: &mut Vec<u8>,
    standing: &RateLimitItem<'_>,
    extra: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    if standing.window.is_zero() {
        return;
    }
    push_integer(text, standing.quota);
    text.extend_from_slice(b";w=");
    push_integer(text, seconds(standing.window));
    extra(text, standing);
}
