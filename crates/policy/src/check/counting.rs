//! Checks combinations of `cost`, `count`, `distinct`, `charge`, `overdraft` and `concurrency`.
//!
//! Must not know: how costs are charged.

use super::LimitContext;
use crate::algorithm::AlgorithmProperties;
use crate::model::{Amount, Cost, Count, Mode, Penalty, Policy};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    check_distinct(limit, sink);
    if is_concurrency(limit) {
        check_concurrency(limit, sink);
    } else {
        check_wait(limit, sink);
    }
    check_charge_always(limit, sink);
    let rule = limit.rule;
    let pays_later =
        rule.charge_always || rule.cost.is_from_response() || rule.count != Count::Requests;
    if rule.overdraft > 0 && !pays_later {
        sink.add(
            limit.location("overdraft"),
            format!(
                "{}: `overdraft` applies to charges after the response, and this limit has none",
                limit.name()
            ),
            "leave it out, or use `charge: always` or `cost: { response: … }`",
        );
    }
    if rule.count != Count::Requests && rule.cost.is_from_response() {
        sink.add(
            limit.location("cost"),
            format!(
                "{}: `cost` from the response and `count` both charge after the response",
                limit.name()
            ),
            "keep one of the two",
        );
    }
    check_refund(limit, sink);
}

/// `refund` gives a charge back, so there must be one at the time of the response.
fn check_refund(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let reason = if rule.refund.is_empty() {
        return;
    } else if is_concurrency(limit) {
        "`concurrency` charges nothing; a permit returns with every response"
    } else if rule.count != Count::Requests {
        "`count` already says which requests are charged"
    } else if rule.distinct.is_some() {
        "`distinct` keeps the values that it has counted"
    } else {
        return;
    };
    sink.add(
        limit.location("refund"),
        format!("{}: {reason}, so `refund` has no effect", limit.name()),
        "leave it out",
    );
}

fn is_concurrency(limit: &LimitContext<'_>) -> bool {
    let rule = limit.rule;
    rule.quota.value.algorithm.is_concurrency()
        || rule
            .levels
            .iter()
            .any(|level| level.quota.value.algorithm.is_concurrency())
}

fn check_distinct(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(distinct) = &rule.distinct else {
        return;
    };
    let name = limit.name();
    let field_location = |field: &str| limit.locations.field_location(limit.index, field);
    let mut reject = |location: SourceLocation, what: &str, help: &str| {
        sink.add(
            location,
            format!(
                "{name}: `distinct` counts distinct values of `{}`, {what}",
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
        reject(
            distinct.location,
            "which is part of the key, so there is always exactly one",
            "leave it out of the key",
        );
    }
    if rule.cost != Cost::default() {
        reject(
            limit.location("cost"),
            "and each value costs 1",
            "leave `cost` out",
        );
    }
    if rule.count != Count::Requests {
        reject(
            limit.location("count"),
            "not responses or denials",
            "leave `count` out",
        );
    }
    if rule.charge_always {
        reject(
            field_location("charge").unwrap_or(distinct.location),
            "and does not support `charge: always`",
            "leave `charge` out",
        );
    }
    match &rule.quota.value.amount {
        Amount::Concurrency { .. } => reject(
            rule.quota.location,
            "and values cannot be held like permits",
            "use `rate` instead of `concurrency`",
        ),
        Amount::Rates(rates) if rates.len() > 1 => reject(
            rule.quota.location,
            "and supports only one period",
            "write one limit for each rate",
        ),
        Amount::Computed(_) => reject(
            rule.quota.location,
            "and does not support a computed rate",
            "write a plain rate",
        ),
        _ => {}
    }
}

/// `wait` needs a bucket: only a bucket can reserve an instant for one request and count it for the next.
fn check_wait(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(wait) = &rule.wait else {
        return;
    };
    let levels = rule.levels.iter().map(|level| &level.quota.value);
    let quotas = std::iter::once(&rule.quota.value).chain(levels);
    let custom = quotas.clone().find_map(|quota| match &quota.details {
        details if details.is_stepped() => Some("refill: interval"),
        details => details.initial.map(|_| "initial"),
    });
    if let Some(field) = custom {
        sink.add(
            wait.location,
            format!("{}: `wait` needs a bucket that refills steadily and starts full, and this one has `{field}`", limit.name()),
            format!("leave out `wait` or `{field}`"),
        );
    }
    let cannot = quotas
        .map(|quota| quota.algorithm.properties())
        .find(|properties| !properties.supports_wait);
    if let Some(AlgorithmProperties {
        name: algorithm, ..
    }) = cannot
    {
        sink.add(
            wait.location,
            format!(
                "{}: `wait` needs an algorithm that can reserve an instant, and `{algorithm}` cannot",
                limit.name()
            ),
            "leave `wait` out, or use `algorithm: token_bucket` or `leaky_queue`",
        );
    }
}

fn check_concurrency(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let name = limit.name();
    let mut reject = |location: SourceLocation, what: &str, help: &str| {
        sink.add(location, format!("{name}: {what}"), help);
    };
    if let Some(wait) = &rule.wait {
        reject(
            wait.location,
            "`wait` needs the time of the next free permit, which is unknown",
            "leave `wait` out",
        );
    }
    if rule.penalty.value == Penalty::Count {
        reject(
            rule.penalty.location,
            "`penalty: count` would hold a permit for a denied request",
            "leave it out, or use `penalty: block 1m`",
        );
    }
    if rule.charge_always {
        reject(
            limit.location("charge"),
            "`charge: always` never denies, so `concurrency` has no effect",
            "leave it out; `mode: shadow` counts without denying",
        );
    }
    if rule.count != Count::Requests {
        reject(
            limit.location("count"),
            "`count` uses the response, when the permit is already released",
            "leave it out, or use `rate` instead of `concurrency`",
        );
    }
    if rule.cost.is_from_response() {
        reject(
            limit.location("cost"),
            "`cost` uses the response, when the permit is already released",
            "leave it out, or use `rate` instead of `concurrency`",
        );
    }
}

/// `charge: always` never denies, so fields about denials have no effect.
fn check_charge_always(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    if !rule.charge_always {
        return;
    }
    let name = limit.name();
    let mut reject = |location: SourceLocation, what: &str| {
        sink.add(
            location,
            format!("{name}: `{what}` needs a denial, and `charge: always` never denies"),
            format!("leave out `{what}` or `charge`"),
        );
    };
    if rule.penalty.value != Penalty::None {
        reject(rule.penalty.location, "penalty");
    }
    if let Some(wait) = &rule.wait {
        reject(wait.location, "wait");
    }
    if rule.count != Count::Requests {
        let location = limit.location("count");
        sink.add(
            location,
            format!("{name}: `count` already charges after the response; `charge: always` would only disable denials"),
            "leave out `charge`",
        );
    }
}

/// `count: denials` needs another rule that denies.
pub(super) fn check_denials(
    policy: &Policy,
    locations: &FieldLocations,
    sink: &mut DiagnosticSink,
) {
    let denies = !policy.deny.is_empty()
        || policy.limits.iter().any(|limit| {
            limit.count != Count::Denials && !limit.charge_always && limit.mode != Mode::Off
        });
    if denies {
        return;
    }
    for (index, limit) in policy.limits.iter().enumerate() {
        if limit.count == Count::Denials {
            sink.add(
                locations.field_location(index, "count").unwrap_or(limit.name.location),
                format!("limit `{}` counts denials, and nothing else in this policy denies", limit.name.value),
                "add the limit whose denials it should count, or count responses: `count: { responses: [4xx] }`",
            );
        }
    }
}
