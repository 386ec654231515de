//! Checks that core accepts the quotas and that they can admit the cost of a request.
//!
//! Must not know: how costs are computed.

use tollgate_core::Timestamp;
use tollgate_core::limit::State;

use super::LimitContext;
use crate::compile::quota::{build_limits, quota_diagnostics};
use crate::humanize::format_number;
use crate::model::{Cost, Period, QuotaSpec};
use crate::read::DiagnosticSink;
use crate::source::{Located, SourceLocation};

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    for (_, quota) in deciding_quotas(limit) {
        for diagnostic in quota_diagnostics(quota, rule.overdraft) {
            sink.push(diagnostic);
        }
    }
    for quota in [&rule.local, &rule.candidate].into_iter().flatten() {
        for diagnostic in quota_diagnostics(quota, 0) {
            sink.push(diagnostic);
        }
    }
    if let Some(spillover) = &rule.spillover {
        for diagnostic in quota_diagnostics(spillover, rule.overdraft) {
            sink.push(diagnostic);
        }
    }
    check_utc_offset(limit, sink);
    check_cost_bounds(limit, sink);
    if !rule.charge_always {
        check_costs(limit, sink);
    }
}

/// All quotas that decide requests of a limit, with their names for messages.
pub(super) fn deciding_quotas<'a>(
    limit: &LimitContext<'a>,
) -> Vec<(String, &'a Located<QuotaSpec>)> {
    let rule = limit.rule;
    let mut quotas = Vec::new();
    if rule.levels.is_empty() {
        quotas.push((limit.name(), &rule.quota));
    }
    for level in &rule.levels {
        quotas.push((format!("level `{}`", level.name.value), &level.quota));
    }
    for (name, quota) in rule.tiers.iter().flat_map(|tiers| &tiers.tiers) {
        quotas.push((format!("tier `{}`", name.value), quota));
    }
    for one in &rule.overrides {
        quotas.push((
            format!("the override on line {}", one.key.location.line),
            &one.quota,
        ));
    }
    quotas
}

/// The maximum that a quota admits at once. `None` if it is unlimited, denies everything, or is invalid.
pub(super) fn capacity(quota: &Located<QuotaSpec>, overdraft: u64) -> Option<u64> {
    let limits = build_limits(quota, overdraft).ok()?;
    limits
        .iter()
        .map(|limit| limit.status(&State::default(), Timestamp::EPOCH).limit)
        .min()
        .filter(|max| *max > 0)
}

fn check_utc_offset(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let Some(location) = limit.locations.field_location(limit.index, "utc_offset") else {
        return;
    };
    let turns = |quota: &QuotaSpec| {
        quota.algorithm.properties().follows_calendar
            && !quota.details.is_first_hit()
            && periods(quota).iter().any(|period| match period {
                Period::Month | Period::Year => true,
                Period::Span(span) => [86_400, 604_800].contains(&span.as_secs_ceil()),
            })
    };
    if !deciding_quotas(limit)
        .iter()
        .any(|(_, quota)| turns(&quota.value))
    {
        sink.add(
            location,
            format!(
                "{}: `utc_offset` is only for windows of a day, week, month or year",
                limit.name()
            ),
            "leave it out, or use `algorithm: fixed_window` with a rate per day, week, month or year",
        );
    }
}

/// The periods that a quota counts over.
pub(super) fn periods(quota: &QuotaSpec) -> Vec<Period> {
    match &quota.amount {
        crate::model::Amount::Rates(rates) => rates.iter().map(|rate| rate.value.period).collect(),
        crate::model::Amount::Computed(computed) => vec![computed.base.value.period],
        _ => Vec::new(),
    }
}

/// Checks the bounds of a cost.
fn check_cost_bounds(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let location = limit.location("cost");
    match &limit.rule.cost {
        Cost::Fixed(0) => sink.add(
            location,
            format!("{}: a `cost` of 0 counts nothing", limit.name()),
            "write at least 1, or exclude the requests with `exempt`",
        ),
        Cost::Attribute {
            at_least, at_most, ..
        } if at_least > at_most => sink.add(
            location,
            format!(
                "{}: `at_least` is {}, above `at_most` {}",
                limit.name(),
                format_number(*at_least),
                format_number(*at_most)
            ),
            "swap the two",
        ),
        Cost::Response {
            estimate, at_most, ..
        }
        | Cost::ResponseBody { estimate, at_most }
            if estimate > at_most =>
        {
            sink.add(
                location,
                format!(
                    "{}: `estimate` is {}, above `at_most` {}",
                    limit.name(),
                    format_number(*estimate),
                    format_number(*at_most)
                ),
                "lower `estimate` or raise `at_most`",
            )
        }
        _ => {}
    }
}

/// Checks that no cost is above the capacity of a quota.
fn check_costs(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let location = limit.location("cost");
    for (subject, quota) in deciding_quotas(limit) {
        let Some(max) = capacity(quota, limit.rule.overdraft) else {
            continue;
        };
        let mut check = |what: &str, cost: u64| {
            if cost > max {
                report_cost_above_capacity(sink, location, &subject, what, cost, max);
            }
        };
        match &limit.rule.cost {
            Cost::Fixed(cost) => check("a request costs", *cost),
            Cost::ByValue {
                values, otherwise, ..
            } => {
                for (value, cost) in values {
                    check(&format!("`{value}` costs"), *cost);
                }
                check("`otherwise` costs", *otherwise);
            }
            Cost::Attribute {
                at_least,
                otherwise,
                ..
            } => {
                check("a request costs at least", *at_least);
                if otherwise > at_least {
                    check("`otherwise` costs", *otherwise);
                }
            }
            Cost::Response { estimate, .. } | Cost::ResponseBody { estimate, .. } => {
                check("a request is estimated at", *estimate);
            }
        }
    }
}

fn report_cost_above_capacity(
    sink: &mut DiagnosticSink,
    location: SourceLocation,
    subject: &str,
    what: &str,
    cost: u64,
    max: u64,
) {
    sink.add(
        location,
        format!(
            "{subject} can never admit a request: {what} {}, and the capacity is {}",
            format_number(cost),
            format_number(max)
        ),
        format!(
            "lower the cost, or raise `burst` or `rate` to at least {}",
            format_number(cost)
        ),
    );
}
