//! Explains the shares of a quota: rate and burst of each, and of the common bucket.
//!
//! Must not know: requests, how the engine lends.

use tollgate_core::Nanos;

use super::limit::{self, QuotaExplanation};
use crate::compile::quota::{QuotaGrant, WindowGrant};
use crate::compile::shares::divide_quota;
use crate::humanize::{format_amount, format_duration};
use crate::model::{LimitRule, Shares};
use crate::source::Diagnostic;

/// The common bucket, then each share.
pub(super) fn explain(
    limit: &LimitRule,
    shares: &Shares,
    max_cost: u64,
) -> Result<Vec<QuotaExplanation>, Vec<Diagnostic>> {
    let divided = divide_quota(limit, shares)?;
    let quota = |who: String, window: WindowGrant| {
        limit::quota(who, &QuotaGrant::Windows(vec![window]), max_cost)
    };
    let common = QuotaExplanation {
        words: describe(&divided.common, "lent"),
        ..quota("to borrow, for everyone".to_owned(), divided.common)
    };
    let by = &shares.by.value;
    let names = shares.shares.iter().zip(divided.shares);
    let owned = names.map(|((name, part), window)| QuotaExplanation {
        words: describe(&window, "guaranteed"),
        ..quota(
            format!("share {} of {by} {}", part.value, name.value),
            window,
        )
    });
    Ok(std::iter::once(common).chain(owned).collect())
}

/// The bucket that decides a request first: its share, or without one the common bucket.
pub(super) fn explain_selected(
    limit: &LimitRule,
    shares: &Shares,
    variant: usize,
    max_cost: u64,
) -> Option<QuotaExplanation> {
    let all = explain(limit, shares, max_cost).ok()?;
    all.into_iter().nth(variant)
}

/// Notes about all shares.
pub(super) fn notes(shares: &Shares) -> [String; 2] {
    [
        format!(
            "a request is denied only if neither its share by {} nor the common bucket has room; all together never exceed the quota",
            shares.by.value
        ),
        "an owner never waits for others longer than one refill of its share; until it is repaid, borrowers are denied".to_owned(),
    ]
}

/// `50 requests at once guaranteed, one every 20 ms`
fn describe(window: &WindowGrant, what: &str) -> String {
    let Ok(built) = window.builder.build(window.units) else {
        return String::new();
    };
    let unit = window.builder.unit;
    let Some(bucket) = built.bucket() else {
        return String::new();
    };
    let every: Nanos = bucket.interval();
    format!(
        "{} at once {what}, {} more every {}",
        format_amount(bucket.limit(), unit),
        format_amount(bucket.block(), unit),
        format_duration(every)
    )
}
