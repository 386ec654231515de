//! What a fleet cannot share in the way that a limit asks for.
//!
//! `leased` takes slices of a quota in advance, which needs a state that slices can be taken from; `async` counts locally
//! and reconciles, which cannot keep a promise about this very moment. Must not know: how either is carried out.

use super::Checked;
use super::quota::main_quotas;
use crate::model::{Consistency, Count, Penalty, Period, QuotaSpec};
use crate::read::Report;

pub(super) fn check(limit: &Checked<'_>, report: &mut Report) {
    let consistency = &limit.rule.consistency;
    let (word, reason) = match consistency.value {
        Consistency::Exact => return,
        Consistency::Leased => ("leased", leased(limit)),
        Consistency::Async(_) => ("async", reconciled(limit)),
    };
    if let Some(reason) = reason {
        report.say(
            consistency.place,
            format!(
                "{}: `consistency: {word}` cannot be honoured: {reason}",
                limit.name()
            ),
            "say `consistency: exact`",
        );
    }
}

fn leased(limit: &Checked<'_>) -> Option<&'static str> {
    let rule = limit.rule;
    for (_, quota) in main_quotas(limit) {
        let properties = quota.value.algorithm.properties();
        if properties.not_leased.is_some() {
            return properties.not_leased;
        }
        if properties.follows_calendar && is_calendar(&quota.value) {
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

fn reconciled(limit: &Checked<'_>) -> Option<&'static str> {
    let rule = limit.rule;
    for (_, quota) in main_quotas(limit) {
        let properties = quota.value.algorithm.properties();
        if properties.not_async.is_some() {
            return properties.not_async;
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

fn is_calendar(quota: &QuotaSpec) -> bool {
    super::quota::periods(quota)
        .iter()
        .any(|period| match period {
            Period::Month | Period::Year => true,
            Period::Span(span) => {
                quota.utc_offset_minutes != 0 && [86_400, 604_800].contains(&span.as_secs_ceil())
            }
        })
}
