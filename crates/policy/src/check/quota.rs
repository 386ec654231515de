//! Quotas that core refuses, and quotas that can never admit what a request costs.
//!
//! Must not know: how costs are found.

use tollgate_core::Timestamp;
use tollgate_core::limit::State;

use super::LimitContext;
use crate::compile::quota::{build_limits, quota_diagnostics};
use crate::humanize::format_number;
use crate::model::{Cost, Period, QuotaSpec};
use crate::read::DiagnosticSink;
use crate::source::{Located, SourceLocation};

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    for (_, quota) in deciding_quotas(limit) {
        for problem in quota_diagnostics(quota, rule.overdraft) {
            report.push(problem);
        }
    }
    for quota in [&rule.local, &rule.candidate].into_iter().flatten() {
        for problem in quota_diagnostics(quota, 0) {
            report.push(problem);
        }
    }
    check_utc_offset(limit, report);
    check_cost_bounds(limit, report);
    if !rule.charge_always {
        check_costs(limit, report);
    }
}

/// Every quota that decides about requests of a limit, with what it is called.
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

/// The most that a quota admits at once; none where it is unlimited, denies everything, or is refused anyway.
pub(super) fn capacity(quota: &Located<QuotaSpec>, overdraft: u64) -> Option<u64> {
    let limits = build_limits(quota, overdraft).ok()?;
    limits
        .iter()
        .map(|limit| limit.status(&State::default(), Timestamp::EPOCH).limit)
        .min()
        .filter(|most| *most > 0)
}

fn check_utc_offset(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let Some(place) = limit.locations.field_location(limit.index, "utc_offset") else {
        return;
    };
    let turns = |quota: &QuotaSpec| {
        quota.algorithm.properties().follows_calendar
            && periods(quota).iter().any(|period| match period {
                Period::Month | Period::Year => true,
                Period::Span(span) => [86_400, 604_800].contains(&span.as_secs_ceil()),
            })
    };
    if !deciding_quotas(limit)
        .iter()
        .any(|(_, quota)| turns(&quota.value))
    {
        report.add(
            place,
            format!(
                "{}: `utc_offset` says when days, weeks and months turn, and none are counted here",
                limit.name()
            ),
            "leave it out, or choose `algorithm: fixed_window` with a rate per day, week or month",
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

/// Bounds of a cost that exclude each other, and costs that count nothing.
fn check_cost_bounds(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let place = limit.location("cost");
    match &limit.rule.cost {
        Cost::Fixed(0) => report.add(
            place,
            format!("{}: a `cost` of 0 counts nothing", limit.name()),
            "write at least 1, or leave the requests out with `exempt`",
        ),
        Cost::Attribute {
            at_least, at_most, ..
        } if at_least > at_most => report.add(
            place,
            format!(
                "{}: `at_least` is {}, above `at_most`, {}",
                limit.name(),
                format_number(*at_least),
                format_number(*at_most)
            ),
            "swap the two",
        ),
        Cost::Response {
            estimate, at_most, ..
        } if estimate > at_most => report.add(
            place,
            format!(
                "{}: `estimate` is {}, above `at_most`, {}",
                limit.name(),
                format_number(*estimate),
                format_number(*at_most)
            ),
            "estimate at most as much as is ever charged",
        ),
        _ => {}
    }
}

/// Costs that no full bucket could pay.
fn check_costs(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let place = limit.location("cost");
    for (of, quota) in deciding_quotas(limit) {
        let Some(most) = capacity(quota, limit.rule.overdraft) else {
            continue;
        };
        let mut look = |what: &str, cost: u64| {
            if cost > most {
                report_cost_above_capacity(report, place, &of, what, cost, most);
            }
        };
        match &limit.rule.cost {
            Cost::Fixed(cost) => look("a request costs", *cost),
            Cost::ByValue {
                values, otherwise, ..
            } => {
                for (value, cost) in values {
                    look(&format!("`{value}` costs"), *cost);
                }
                look("`otherwise` costs", *otherwise);
            }
            Cost::Attribute {
                at_least,
                otherwise,
                ..
            } => {
                look("a request costs at least", *at_least);
                if otherwise > at_least {
                    look("`otherwise` costs", *otherwise);
                }
            }
            Cost::Response { estimate, .. } => look("a request is estimated at", *estimate),
        }
    }
}

fn report_cost_above_capacity(
    report: &mut DiagnosticSink,
    place: SourceLocation,
    of: &str,
    what: &str,
    cost: u64,
    most: u64,
) {
    report.add(
        place,
        format!(
            "{of} can never admit this: {what} {}, and at most {} fit at once",
            format_number(cost),
            format_number(most)
        ),
        format!(
            "lower the cost, or raise `burst` or `rate` to at least {}",
            format_number(cost)
        ),
    );
}
