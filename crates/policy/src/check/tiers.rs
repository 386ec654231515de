//! Checks tiers, overrides, the local bucket and the candidate against the limit's own quota.
//!
//! Tiers and overrides use the state of the limit's own quota, so they need the same algorithm and unit. Must not know:
//! how a quota is selected.

use std::collections::HashMap;

use super::LimitContext;
use super::quota::{capacity, deciding_quotas};
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{Algorithm, Amount, KeyPart, Period, QuotaSpec};
use crate::read::DiagnosticSink;
use crate::source::{Located, SourceLocation};

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    if limit.rule.levels.is_empty() {
        for (subject, quota) in deciding_quotas(limit).iter().skip(1) {
            check_same_counting(limit, subject, quota, sink);
        }
    }
    check_tier_names(limit, sink);
    check_overrides(limit, sink);
    check_local(limit, sink);
    check_candidate(limit, sink);
}

fn check_same_counting(
    limit: &LimitContext<'_>,
    subject: &str,
    quota: &Located<QuotaSpec>,
    sink: &mut DiagnosticSink,
) {
    let own = &limit.rule.quota.value;
    let other = &quota.value;
    if other.amount == Amount::Unlimited {
        return;
    }
    if other.algorithm != own.algorithm {
        sink.add(
            quota.location,
            format!(
                "{}: {subject} has another algorithm, and both share one state",
                limit.name()
            ),
            "set the algorithm of the whole limit; use `candidate` to try another one",
        );
    } else if other.unit != own.unit {
        sink.add(
            quota.location,
            format!(
                "{}: {subject} counts {}, and the limit counts {}",
                limit.name(),
                other.unit.name(),
                own.unit.name()
            ),
            "set the unit of the whole limit",
        );
    }
}

/// `1 value`, `2 values`, `no values`
fn pluralize(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Values that differ only in case may name the same tier.
fn check_tier_names(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let tiers = limit.rule.tiers.iter().flat_map(|tiers| &tiers.tiers);
    check_unique_names(limit, "tier", tiers.map(|(name, _)| name), sink);
}

/// Reports names that are given twice.
pub(super) fn check_unique_names<'a>(
    limit: &LimitContext<'_>,
    one: &str,
    names: impl Iterator<Item = &'a Located<Box<str>>>,
    sink: &mut DiagnosticSink,
) {
    let mut first_locations: HashMap<&str, SourceLocation> = HashMap::new();
    for name in names {
        let first = *first_locations.entry(&name.value).or_insert(name.location);
        if first != name.location {
            sink.add(
                name.location,
                format!(
                    "{}: {one} `{}` is given twice; first on line {}",
                    limit.name(),
                    name.value,
                    first.line
                ),
                "keep one of the two",
            );
        }
    }
}

fn check_overrides(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let parts = &limit.rule.key;
    let mut first_locations: HashMap<Vec<String>, SourceLocation> = HashMap::new();
    for one in &limit.rule.overrides {
        let (values, location) = (&one.key.value, one.key.location);
        if values.len() != parts.len() {
            let named: Vec<String> = parts
                .iter()
                .map(|part| part.attribute.value.to_string())
                .collect();
            sink.add(
                location,
                format!(
                    "{}: an override has {}, and the key has {}",
                    limit.name(),
                    pluralize(values.len(), "value"),
                    pluralize(parts.len(), "part")
                ),
                if parts.is_empty() {
                    "give the limit a `key`, or leave the override out".to_owned()
                } else {
                    format!("write one value for each of `{}`", named.join("`, `"))
                },
            );
            continue;
        }
        let mut key = Vec::new();
        for (part, value) in parts.iter().zip(values) {
            match canonical_value(part, value) {
                Ok(value) => key.push(value),
                Err(error) => sink.add_field_error(location, "key", error),
            }
        }
        let first = *first_locations.entry(key).or_insert(location);
        if first != location {
            sink.add(
                location,
                format!(
                    "{}: two overrides have the same key; the first on line {}",
                    limit.name(),
                    first.line
                ),
                "keep one of the two",
            );
        }
    }
}

/// A value of a key in the form that is compared.
fn canonical_value(part: &KeyPart, value: &str) -> Result<String, grammar::GrammarError> {
    Ok(match part.attribute.value {
        Attribute::Ip => grammar::parse_address(value)?.to_string(),
        _ if part.lower => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    })
}

/// A local bucket only saves calls to the shared one. If it is tighter, the shared bucket is never exhausted.
fn check_local(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let Some(local) = &limit.rule.local else {
        return;
    };
    let name = limit.name();
    if limit.rule.quota.value.algorithm.is_concurrency() {
        sink.add(
            local.location,
            format!("{name}: `local` is a rate, and the limit has `concurrency`"),
            "leave `local` out, or use a separate limit for the rate",
        );
        return;
    }
    let Some((local_units, local_span)) = single_bucket_rate(&local.value) else {
        sink.add(
            local.location,
            format!("{name}: `local` must be one token bucket"),
            "write one rate, with or without `burst`",
        );
        return;
    };
    for (subject, quota) in deciding_quotas(limit) {
        let Some((units, span)) = slowest_rate(&quota.value) else {
            continue;
        };
        let slower =
            u128::from(local_units) * u128::from(span) < u128::from(units) * u128::from(local_span);
        let smaller = matches!((capacity(local, 0), capacity(quota, 0)), (Some(local), Some(main)) if local < main);
        if slower || smaller {
            let than = if subject == name {
                "the limit"
            } else {
                subject.as_str()
            };
            sink.add(
                local.location,
                format!("{name}: `local` is tighter than {than}, so a node would deny requests that the limit allows"),
                if slower { "raise its rate to at least the limit's" } else { "raise its `burst` to at least the limit's" },
            );
            return;
        }
    }
}

fn single_bucket_rate(quota: &QuotaSpec) -> Option<(u64, u64)> {
    match &quota.amount {
        Amount::Rates(rates) if rates.len() == 1 && quota.algorithm == Algorithm::TokenBucket => {
            slowest_rate(quota)
        }
        _ => None,
    }
}

/// The lowest rate: units and nanoseconds.
fn slowest_rate(quota: &QuotaSpec) -> Option<(u64, u64)> {
    let nanos = |period: Period| period.fixed_length().as_nanos();
    match &quota.amount {
        Amount::Rates(rates) => rates
            .iter()
            .map(|rate| (rate.value.units, nanos(rate.value.period)))
            .min_by(|a, b| {
                (u128::from(a.0) * u128::from(b.1)).cmp(&(u128::from(b.0) * u128::from(a.1)))
            }),
        Amount::Computed(computed) => Some((
            computed.at_most.value.units,
            nanos(computed.at_most.value.period),
        )),
        _ => None,
    }
}

fn check_candidate(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let Some(candidate) = &limit.rule.candidate else {
        return;
    };
    let own = &limit.rule.quota;
    let name = limit.name();
    if candidate == own {
        sink.add(
            candidate.location,
            format!("{name}: `candidate` is the same as the enforced quota"),
            "change its rate or algorithm, or leave it out",
        );
    } else if candidate.value.amount == Amount::Unlimited {
        sink.add(
            candidate.location,
            format!("{name}: `candidate` cannot be unlimited"),
            "give it a rate; to try the limit itself use `mode: shadow`",
        );
    } else if candidate.value.algorithm.is_concurrency() != own.value.algorithm.is_concurrency() {
        sink.add(
            candidate.location,
            format!(
                "{name}: the limit and its `candidate` must both use `rate` or both use `concurrency`"
            ),
            "use a separate limit with `mode: shadow`",
        );
    } else if candidate.value.unit != own.value.unit {
        sink.add(
            candidate.location,
            format!(
                "{name}: `candidate` counts {}, and the limit counts {}",
                candidate.value.unit.name(),
                own.value.unit.name()
            ),
            "use the same unit in both",
        );
    }
}
