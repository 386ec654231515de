//! The earlier drafts, which send the status of one limit, the binding one, and list the policies.
//!
//! Must not know: the other dialects.

use super::lists::list;
use crate::header_fields::{HeaderFields, Merge};
use crate::rate_limit_item::RateLimitItem;
use crate::rate_limit_status::RateLimitStatus;
use crate::text::{push_integer, seconds};

/// A dictionary in one field. It requires a reset, so a limit without one gets zero.
pub(super) fn draft_07(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = status.binding() else {
        return;
    };
    fields.push("ratelimit", Merge::KeepExisting, |text| {
        text.extend_from_slice(b"limit=");
        push_integer(text, binding.quota);
        text.extend_from_slice(b", remaining=");
        push_integer(text, binding.remaining());
        text.extend_from_slice(b", reset=");
        push_integer(text, status.wait(binding).map_or(0, seconds));
    });
    push_policies(status, fields);
}

/// Three fields for the limit, and the policies in a fourth.
pub(super) fn draft_06(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = status.binding() else {
        return;
    };
    fields.push("ratelimit-limit", Merge::KeepExisting, |text| {
        push_integer(text, binding.quota);
    });
    push_remaining_and_reset(
        status,
        fields,
        binding,
        ["ratelimit-remaining", "ratelimit-reset"],
    );
    push_policies(status, fields);
}

/// The limit, followed by the policies in the same field.
pub(super) fn draft_03(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = status.binding() else {
        return;
    };
    fields.push("ratelimit-limit", Merge::KeepExisting, |text| {
        push_limit_and_policies(status, text, binding, |_, _| {});
    });
    push_remaining_and_reset(
        status,
        fields,
        binding,
        ["ratelimit-remaining", "ratelimit-reset"],
    );
}

/// The draft before the working group's, as Envoy implements it: the prefix `X-` and policy names.
pub(super) fn envoy(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    let Some(binding) = status.binding() else {
        return;
    };
    fields.push("x-ratelimit-limit", Merge::KeepExisting, |text| {
        push_limit_and_policies(status, text, binding, |text, item| {
            text.extend_from_slice(b";name=");
            text.extend_from_slice(item.policy.quoted_name().as_bytes());
        });
    });
    push_remaining_and_reset(
        status,
        fields,
        binding,
        ["x-ratelimit-remaining", "x-ratelimit-reset"],
    );
}

fn push_remaining_and_reset(
    status: &RateLimitStatus<'_>,
    fields: &mut HeaderFields,
    binding: &RateLimitItem<'_>,
    [remaining, reset]: [&'static str; 2],
) {
    let left = binding.remaining();
    fields.push(remaining, Merge::KeepExisting, |text| {
        push_integer(text, left);
    });
    if let Some(wait) = status.wait(binding) {
        fields.push(reset, Merge::KeepExisting, |text| {
            push_integer(text, seconds(wait));
        });
    }
}

fn push_policies(status: &RateLimitStatus<'_>, fields: &mut HeaderFields) {
    fields.push("ratelimit-policy", Merge::Append, |text| {
        list(status, text, |text, item| {
            push_policy(text, item, |_, _| {});
        });
    });
}

fn push_limit_and_policies(
    status: &RateLimitStatus<'_>,
    text: &mut Vec<u8>,
    binding: &RateLimitItem<'_>,
    extra: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    push_integer(text, binding.quota);
    text.extend_from_slice(b", ");
    let start = text.len();
    list(status, text, |text, item| {
        push_policy(text, item, &extra);
    });
    if text.len() == start {
        text.truncate(start - 2);
    }
}

/// Appends a quota and its window. These drafts require a window, so a limit without one has no policy.
fn push_policy(
    text: &mut Vec<u8>,
    item: &RateLimitItem<'_>,
    extra: impl Fn(&mut Vec<u8>, &RateLimitItem<'_>),
) {
    if item.window.is_zero() {
        return;
    }
    push_integer(text, item.quota);
    text.extend_from_slice(b";w=");
    push_integer(text, seconds(item.window));
    extra(text, item);
}
