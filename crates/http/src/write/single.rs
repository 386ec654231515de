//! The earlier drafts, which tell where one limit stands: the binding one. Policies are listed, by number.
//!
//! Must not know: the other families.

use super::lists::list;
use crate::answer::RateLimitStatus;
use crate::standing::RateLimitItem;
use crate::text::{push_integer, seconds};
use crate::words::{HeaderFields, Merge};

/// One field with a dictionary. It needs a reset, so a limit that names no time has one of zero.
pub(super) fn draft_07(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.field("ratelimit", Merge::KeepTheirs, |text| {
        text.extend_from_slice(b"limit=");
        push_integer(text, binding.quota);
        text.extend_from_slice(b", remaining=");
        push_integer(text, binding.remaining());
        text.extend_from_slice(b", reset=");
        push_integer(text, answer.wait(binding).map_or(0, seconds));
    });
    policies(answer, words);
}

/// Three fields for the limit, and the policies in a fourth.
pub(super) fn draft_06(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.field("ratelimit-limit", Merge::KeepTheirs, |text| {
        push_integer(text, binding.quota);
    });
    state(
        answer,
        words,
        binding,
        ["ratelimit-remaining", "ratelimit-reset"],
    );
    policies(answer, words);
}

/// The limit, and behind it the policies.
pub(super) fn draft_03(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    let Some(binding) = answer.binding() else {
        return;
    };
    words.field("ratelimit-limit", Merge::KeepTheirs, |text| {
        limit_and_policies(answer, text, binding, |_, _| {});
    });
    state(
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
    words.field("x-ratelimit-limit", Merge::KeepTheirs, |text| {
        limit_and_policies(answer, text, binding, |text, standing| {
            text.extend_from_slice(b";name=");
            text.extend_from_slice(standing.policy.quoted().as_bytes());
        });
    });
    state(
        answer,
        words,
        binding,
        ["x-ratelimit-remaining", "x-ratelimit-reset"],
    );
}

fn state(
    answer: &RateLimitStatus<'_>,
    words: &mut HeaderFields,
    binding: &RateLimitItem<'_>,
    [remaining, reset]: [&'static str; 2],
) {
    let left = binding.remaining();
    words.field(remaining, Merge::KeepTheirs, |text| {
        push_integer(text, left);
    });
    if let Some(wait) = answer.wait(binding) {
        words.field(reset, Merge::KeepTheirs, |text| {
            push_integer(text, seconds(wait));
        });
    }
}

fn policies(answer: &RateLimitStatus<'_>, words: &mut HeaderFields) {
    words.field("ratelimit-policy", Merge::Append, |text| {
        list(answer, text, |text, standing| {
            push_policy(text, standing, |_, _| {});
        });
    });
}

fn limit_and_policies(
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
