//! What is counted: combinations of `cost`, `count`, `distinct`, `charge`, `overdraft` and `concurrency` that mean nothing.
//!
//! Must not know: how anything is charged.

use super::LimitContext;
use crate::algorithm::AlgorithmProperties;
use crate::model::{Amount, Cost, Count, Mode, Penalty, Policy};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    check_distinct(limit, report);
    if is_concurrency(limit) {
        check_concurrency(limit, report);
    } else {
        check_wait(limit, report);
    }
    check_charge_always(limit, report);
    let rule = limit.rule;
    let pays_later = rule.charge_always
        || matches!(rule.cost, Cost::Response { .. })
        || rule.count != Count::Requests;
    if rule.overdraft > 0 && !pays_later {
        report.add(
            limit.location("overdraft"),
            format!("{}: `overdraft` is for what is charged afterwards, and here everything is charged before", limit.name()),
            "leave it out, or say `charge: always` or `cost: { response: … }`",
        );
    }
    if rule.count != Count::Requests && matches!(rule.cost, Cost::Response { .. }) {
        report.add(
            limit.location("cost"),
            format!(
                "{}: `cost` waits for the response, and `count` already counts only afterwards",
                limit.name()
            ),
            "keep one of the two",
        );
    }
}

fn is_concurrency(limit: &LimitContext<'_>) -> bool {
    let rule = limit.rule;
    rule.quota.value.algorithm.is_concurrency()
        || rule
            .levels
            .iter()
            .any(|level| level.quota.value.algorithm.is_concurrency())
}

fn check_distinct(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(distinct) = &rule.distinct else {
        return;
    };
    let name = limit.name();
    let given = |field: &str| limit.locations.field_location(limit.index, field);
    let mut refuse = |place: SourceLocation, what: &str, help: &str| {
        report.add(
            place,
            format!(
                "{name}: `distinct` counts different values of `{}`, {what}",
                distinct.value
            ),
            help,
        );
    };
    if rule
        .key
        .iter()
        .any(|part| part.attribute.value == distinct.value)
    {
        refuse(
            distinct.location,
            "which is part of the key, so there is always one",
            "leave it out of the key",
        );
    }
    if rule.cost != Cost::default() {
        refuse(
            limit.location("cost"),
            "and each counts as one, whatever a request costs",
            "leave `cost` out",
        );
    }
    if rule.count != Count::Requests {
        refuse(
            limit.location("count"),
            "not responses or denials",
            "leave `count` out",
        );
    }
    if rule.charge_always {
        refuse(
            given("charge").unwrap_or(distinct.location),
            "and never into debt",
            "leave `charge` out",
        );
    }
    match &rule.quota.value.amount {
        Amount::Concurrency { .. } => refuse(
            rule.quota.location,
            "and none of them is held",
            "say `rate` instead of `concurrency`",
        ),
        Amount::Rates(rates) if rates.len() > 1 => refuse(
            rule.quota.location,
            "and remembers them for one period, not for several",
            "write one limit for each rate",
        ),
        Amount::Computed(_) => refuse(
            rule.quota.location,
            "by a rate that is the same for all",
            "write a plain rate",
        ),
        _ => {}
    }
}

/// Only a bucket can promise an instant to one request and count on it for the next.
fn check_wait(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(wait) = &rule.wait else {
        return;
    };
    let levels = rule.levels.iter().map(|level| &level.quota.value);
    let cannot = std::iter::once(&rule.quota.value)
        .chain(levels)
        .map(|quota| quota.algorithm.properties())
        .find(|properties| !properties.supports_wait);
    if let Some(AlgorithmProperties {
        name: algorithm, ..
    }) = cannot
    {
        report.add(
            wait.location,
            format!(
                "{}: `wait` promises everyone an instant of their own, which `{algorithm}` cannot",
                limit.name()
            ),
            "leave `wait` out, or say `algorithm: token_bucket` or `leaky_queue`",
        );
    }
}

fn check_concurrency(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    let name = limit.name();
    let mut refuse = |place: SourceLocation, what: &str, help: &str| {
        report.add(place, format!("{name}: {what}"), help)
    };
    if let Some(wait) = &rule.wait {
        refuse(
            wait.location,
            "`wait` needs to know when there will be room, and nobody knows when a place is given back",
            "leave `wait` out",
        );
    }
    if rule.penalty.value == Penalty::Count {
        refuse(
            rule.penalty.location,
            "`penalty: count` would hold a place for a request that was refused",
            "leave it out, or say `penalty: block 1m`",
        );
    }
    if rule.charge_always {
        refuse(
            limit.location("charge"),
            "`charge: always` never denies, and places are only counted to be denied",
            "leave it out; `mode: shadow` counts without denying",
        );
    }
    if rule.count != Count::Requests {
        refuse(
            limit.location("count"),
            "`count` looks at what was answered, when the place is already given back",
            "leave it out, or say `rate` instead of `concurrency`",
        );
    }
    if matches!(rule.cost, Cost::Response { .. }) {
        refuse(
            limit.location("cost"),
            "`cost` comes with the response, when the place is already given back",
            "leave it out, or say `rate` instead of `concurrency`",
        );
    }
}

/// `charge: always` never denies, so nothing that follows a denial can happen.
fn check_charge_always(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    if !rule.charge_always {
        return;
    }
    let name = limit.name();
    let mut refuse = |place: SourceLocation, what: &str| {
        report.add(
            place,
            format!("{name}: `{what}` follows a denial, and `charge: always` never denies"),
            format!("leave out `{what}` or `charge`"),
        );
    };
    if rule.penalty.value != Penalty::None {
        refuse(rule.penalty.location, "penalty");
    }
    if let Some(wait) = &rule.wait {
        refuse(wait.location, "wait");
    }
    if rule.count != Count::Requests {
        let place = limit.location("count");
        report.add(
            place,
            format!("{name}: `count` already charges afterwards, so `charge: always` would only keep it from denying"),
            "leave out `charge`",
        );
    }
}

/// Counting denials makes sense only where something else denies.
pub(super) fn check_denials(policy: &Policy, places: &FieldLocations, report: &mut DiagnosticSink) {
    let denies = !policy.deny.is_empty()
        || policy.limits.iter().any(|limit| {
            limit.count != Count::Denials && !limit.charge_always && limit.mode != Mode::Off
        });
    if denies {
        return;
    }
    for (index, limit) in policy.limits.iter().enumerate() {
        if limit.count == Count::Denials {
            report.add(
                places.field_location(index, "count").unwrap_or(limit.name.location),
                format!("limit `{}` counts denials, and nothing else in this policy denies", limit.name.value),
                "add the limit whose denials it should count, or count responses: `count: { responses: [4xx] }`",
            );
        }
    }
}
