//! Tiers, overrides, the local bucket and the candidate beside the limit's own quota.
//!
//! Tiers and overrides are decided on the state of the limit's own quota, so they must be counted alike.
//! Must not know: how a quota is chosen.

use std::collections::HashMap;

use super::LimitContext;
use super::quota::{capacity, deciding_quotas};
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{Algorithm, Amount, KeyPart, Period, QuotaSpec};
use crate::read::DiagnosticSink;
use crate::source::{Located, SourceLocation};

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    if limit.rule.levels.is_empty() {
        for (of, quota) in deciding_quotas(limit).iter().skip(1) {
            check_same_counting(limit, of, quota, report);
        }
    }
    check_tier_names(limit, report);
    check_overrides(limit, report);
    check_local(limit, report);
    check_candidate(limit, report);
}

fn check_same_counting(
    limit: &LimitContext<'_>,
    of: &str,
    quota: &Located<QuotaSpec>,
    report: &mut DiagnosticSink,
) {
    let own = &limit.rule.quota.value;
    let other = &quota.value;
    if other.amount == Amount::Unlimited {
        return;
    }
    if other.algorithm != own.algorithm {
        report.add(
            quota.location,
            format!(
                "{}: {of} is counted by another algorithm, and both share one state",
                limit.name()
            ),
            "choose the algorithm for the whole limit; `candidate` tries another one",
        );
    } else if other.unit != own.unit {
        report.add(
            quota.location,
            format!(
                "{}: {of} counts {}, and the limit counts {}",
                limit.name(),
                other.unit.name(),
                own.unit.name()
            ),
            "choose the unit for the whole limit",
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

/// Values that differ only in how they are written name the same tier.
fn check_tier_names(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let mut seen: HashMap<&str, SourceLocation> = HashMap::new();
    for (name, _) in limit.rule.tiers.iter().flat_map(|tiers| &tiers.tiers) {
        let first = *seen.entry(&name.value).or_insert(name.location);
        if first != name.location {
            report.add(
                name.location,
                format!(
                    "{}: tier `{}` is given twice; first on line {}",
                    limit.name(),
                    name.value,
                    first.line
                ),
                "keep one of the two",
            );
        }
    }
}

fn check_overrides(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let parts = &limit.rule.key;
    let mut seen: HashMap<Vec<String>, SourceLocation> = HashMap::new();
    for one in &limit.rule.overrides {
        let (values, place) = (&one.key.value, one.key.location);
        if values.len() != parts.len() {
            let named: Vec<String> = parts
                .iter()
                .map(|part| part.attribute.value.to_string())
                .collect();
            report.add(
                place,
                format!(
                    "{}: an override has {}, and the key has {}",
                    limit.name(),
                    pluralize(values.len(), "value"),
                    pluralize(parts.len(), "part")
                ),
                if parts.is_empty() {
                    "give the limit a `key`, or leave the override out".to_owned()
                } else {
                    format!("give one value each for `{}`", named.join("`, `"))
                },
            );
            continue;
        }
        let mut key = Vec::new();
        for (part, value) in parts.iter().zip(values) {
            match canonical_value(part, value) {
                Ok(value) => key.push(value),
                Err(wrong) => report.add_field_error(place, "key", wrong),
            }
        }
        let first = *seen.entry(key).or_insert(place);
        if first != place {
            report.add(
                place,
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

/// A value of a key as it is compared.
fn canonical_value(part: &KeyPart, value: &str) -> Result<String, grammar::GrammarError> {
    Ok(match part.attribute.value {
        Attribute::Ip => grammar::parse_address(value)?.to_string(),
        _ if part.lower => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    })
}

/// A local bucket in front of a global one only saves asking; if it is tighter, the global one is never reached.
fn check_local(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let Some(local) = &limit.rule.local else {
        return;
    };
    let name = limit.name();
    if limit.rule.quota.value.algorithm.is_concurrency() {
        report.add(
            local.location,
            format!("{name}: `local` is a rate, and the limit counts how many at once"),
            "leave `local` out, or write a limit of its own for the rate",
        );
        return;
    }
    let Some((local_units, local_span)) = single_bucket_rate(&local.value) else {
        report.add(
            local.location,
            format!("{name}: `local` must be one token bucket"),
            "write one rate, with or without `burst`",
        );
        return;
    };
    for (of, quota) in deciding_quotas(limit) {
        let Some((units, span)) = slowest_rate(&quota.value) else {
            continue;
        };
        let slower =
            u128::from(local_units) * u128::from(span) < u128::from(units) * u128::from(local_span);
        let smaller = matches!((capacity(local, 0), capacity(quota, 0)), (Some(local), Some(main)) if local < main);
        if slower || smaller {
            let than = if of == name { "the limit" } else { of.as_str() };
            report.add(
                local.location,
                format!("{name}: `local` is tighter than {than}, so each node alone would deny what all may have"),
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

/// The rate that decides in the long run: units and nanoseconds.
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

fn check_candidate(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let Some(candidate) = &limit.rule.candidate else {
        return;
    };
    let own = &limit.rule.quota;
    let name = limit.name();
    if candidate == own {
        report.add(
            candidate.location,
            format!("{name}: `candidate` is the same as the enforced quota, so they never differ"),
            "change its rate or algorithm, or leave it out",
        );
    } else if candidate.value.amount == Amount::Unlimited {
        report.add(
            candidate.location,
            format!("{name}: `candidate` is unlimited, so it is nothing to compare with"),
            "give it a rate; `mode: shadow` tries the limit itself",
        );
    } else if candidate.value.algorithm.is_concurrency() != own.value.algorithm.is_concurrency() {
        report.add(
            candidate.location,
            format!(
                "{name}: one of the limit and its `candidate` counts how many at once, the other how many per period"
            ),
            "try it as a limit of its own with `mode: shadow`",
        );
    } else if candidate.value.unit != own.value.unit {
        report.add(
            candidate.location,
            format!(
                "{name}: `candidate` counts {}, and the limit counts {}",
                candidate.value.unit.name(),
                own.value.unit.name()
            ),
            "count the same unit in both",
        );
    }
}
