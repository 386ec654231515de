//! Checks that a limit supports its `consistency`.
//!
//! `leased` takes parts of a quota in advance, so the algorithm must support leases. `async` counts locally and
//! reconciles later, so it cannot be exact at any instant. Must not know: how fleets carry out either.

use super::LimitContext;
use super::quota::deciding_quotas;
use crate::model::{Consistency, Count, Penalty, Period, QuotaSpec};
use crate::read::DiagnosticSink;

const SPILLOVER: &str = "`spillover` needs the state of both quotas in the decision";
const SHARES: &str = "`shares` need the state of the whole quota in the decision";

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let consistency = &limit.rule.consistency;
    let (keyword, reason) = match consistency.value {
        Consistency::Exact => return,
        Consistency::Leased => ("leased", why_not_leased(limit)),
        Consistency::Async(_) => ("async", why_not_async(limit)),
    };
    if let Some(reason) = reason {
        sink.add(
            consistency.location,
            format!(
                "{}: `consistency: {keyword}` is not supported: {reason}",
                limit.name()
            ),
            "use `consistency: exact`",
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
        if let Some(reason) = custom_bucket(&quota.value) {
            return Some(reason);
        }
        if properties.follows_calendar && follows_calendar(&quota.value) {
            return Some("a lease has a fixed length, and calendar windows do not");
        }
    }
    if rule.charge_always {
        return Some("`charge: always` goes into debt, and a lease cannot");
    }
    if rule.overdraft > 0 {
        return Some("`overdraft` goes into debt, and a lease cannot");
    }
    if rule.count != Count::Requests {
        return Some("`count` charges after the response, and a lease is charged before");
    }
    if rule.wait.is_some() {
        return Some("`wait` needs one queue, and each node would have its own");
    }
    if rule.distinct.is_some() {
        return Some("`distinct` needs the values of all nodes");
    }
    if rule.spillover.is_some() {
        return Some(SPILLOVER);
    }
    if rule.shares.is_some() {
        return Some(SHARES);
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
        if let Some(reason) = custom_bucket(&quota.value) {
            return Some(reason);
        }
        if quota.value.details.is_first_hit() {
            return Some(
                "`window: first_hit` needs one first request, and each node would see another",
            );
        }
    }
    if rule.wait.is_some() {
        return Some("`wait` needs one queue, and each node would have its own");
    }
    if rule.penalty.value != Penalty::None {
        return Some(
            "`penalty` applies to all nodes immediately, and other nodes learn of a denial later",
        );
    }
    if rule.distinct.is_some() {
        return Some("`distinct` needs the values of all nodes");
    }
    if rule.spillover.is_some() {
        return Some(SPILLOVER);
    }
    if rule.shares.is_some() {
        return Some(SHARES);
    }
    None
}

/// Why a token bucket that is not plain can be neither leased nor counted locally.
fn custom_bucket(quota: &QuotaSpec) -> Option<&'static str> {
    if quota.details.is_stepped() {
        return Some("`refill: interval` needs one clock for its steps");
    }
    let initial = quota.details.initial;
    initial.map(|_| "`initial` needs one record of the keys that were seen")
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
