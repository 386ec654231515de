//! What a fleet cannot share in the way that a limit asks for.
//!
//! `leased` takes slices of a quota in advance, which needs a state that slices can be taken from; `async` counts locally
//! and reconciles, which cannot keep a promise about this very moment. Must not know: how either is carried out.

use super::LimitContext;
use super::quota::deciding_quotas;
use crate::model::{Consistency, Count, Penalty, Period, QuotaSpec};
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let consistency = &limit.rule.consistency;
    let (word, reason) = match consistency.value {
        Consistency::Exact => return,
        Consistency::Leased => ("leased", why_not_leased(limit)),
        Consistency::Async(_) => ("async", why_not_async(limit)),
    };
    if let Some(reason) = reason {
        report.add(
            consistency.location,
            format!(
                "{}: `consistency: {word}` cannot be honoured: {reason}",
                limit.name()
            ),
            "say `consistency: exact`",
        );
    }
}

fn why_not_leased(limit: &LimitContext<'_>) -> Option<&'static str> {
    let rule = limit.rule;
    for (_, quota) in deciding_quotas(limit) {
        let properties = quota.value.algorithm.properties();
        if properties.why_not_leased.is_some() {
            return properties.why_not_leased;
        }
        if properties.follows_calendar && follows_calendar(&quota.value) {
            return Some("a slice lasts a fixed time, and calendar windows do not");
        }
    }
    if rule.charge_always {
        return Some("`charge: always` goes into debt, and a slice has none to give");
    }
    if rule.overdraft > 0 {
        return Some("`overdraft` goes into debt, and a slice has none to give");
    }
    if rule.count != Count::Requests {
        return Some("`count` charges afterwards, and a slice is charged before");
    }
    if rule.wait.is_some() {
        return Some("`wait` promises a place in one queue, and each node would keep its own");
    }
    if rule.distinct.is_some() {
        return Some("`distinct` must know what every node has seen");
    }
    None
}

fn why_not_async(limit: &LimitContext<'_>) -> Option<&'static str> {
    let rule = limit.rule;
    for (_, quota) in deciding_quotas(limit) {
        let properties = quota.value.algorithm.properties();
        if properties.why_not_async.is_some() {
            return properties.why_not_async;
        }
    }
    if rule.wait.is_some() {
        return Some("`wait` promises a place in one queue, and each node would keep its own");
    }
    if rule.penalty.value != Penalty::None {
        return Some(
            "`penalty` punishes a denial everywhere at once, and other nodes learn of it later",
        );
    }
    if rule.distinct.is_some() {
        return Some("`distinct` must know what every node has seen");
    }
    None
}

fn follows_calendar(quota: &QuotaSpec) -> bool {
    super::quota::periods(quota)
        .iter()
        .any(|period| match period {
            Period::Month | Period::Year => true,
            Period::Span(span) => {
                quota.utc_offset_minutes != 0 && [86_400, 604_800].contains(&span.as_secs_ceil())
            }
        })
}
