//! Checks that a limit supports its `shares`: guaranteed parts of its quota.
//!
//! Must not know: how the quota is divided, how the engine lends.

use super::LimitContext;
use super::tiers::check_unique_names;
use crate::compile::quota::quota_diagnostics;
use crate::compile::shares::divide_quota;
use crate::model::{Count, Penalty};
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(shares) = &rule.shares else {
        return;
    };
    for (field, reason) in unsupported_fields(limit) {
        sink.add(
            limit.location(field),
            format!(
                "{}: `{field}` cannot be combined with `shares`: {reason}",
                limit.name()
            ),
            "keep one of the two",
        );
    }
    check_unique_names(
        limit,
        "share",
        shares.shares.iter().map(|(name, _)| name),
        sink,
    );
    // An invalid quota is reported already.
    if quota_diagnostics(&rule.quota, rule.overdraft).is_empty() {
        let divided = divide_quota(rule, shares);
        for diagnostic in divided.err().into_iter().flatten() {
            sink.push(diagnostic);
        }
    }
}

/// The fields of a limit that exclude `shares`, and why.
fn unsupported_fields(limit: &LimitContext<'_>) -> Vec<(&'static str, &'static str)> {
    let rule = limit.rule;
    let fields = [
        (
            rule.tiers.is_some(),
            "tiers",
            "shares are parts of one quota, and a tier is another",
        ),
        (
            !rule.overrides.is_empty(),
            "overrides",
            "shares are parts of one quota, and an override is another",
        ),
        (
            rule.spillover.is_some(),
            "spillover",
            "a request without room borrows, and nothing is left to spill over",
        ),
        (
            rule.wait.is_some(),
            "wait",
            "a request without room would both wait and borrow",
        ),
        (
            rule.penalty.value != Penalty::None,
            "penalty",
            "a block of the key would deny owners what is guaranteed to them",
        ),
        (
            rule.charge_always,
            "charge",
            "`charge: always` never denies, so a guarantee means nothing",
        ),
        (
            rule.overdraft > 0,
            "overdraft",
            "only owners may overdraw the quota, by what their shares hold",
        ),
        (
            rule.count != Count::Requests,
            "count",
            "it charges after the response, when the choice is made already",
        ),
        (
            rule.distinct.is_some(),
            "distinct",
            "a value counts once, and both buckets would have to know it",
        ),
        (
            rule.bucket.is_some(),
            "bucket",
            "limits that share a state would disagree about the shares",
        ),
        (
            rule.candidate.is_some(),
            "candidate",
            "it would be compared without shares",
        ),
    ];
    let excluded = fields.into_iter().filter(|(is_set, _, _)| *is_set);
    excluded.map(|(_, field, reason)| (field, reason)).collect()
}
