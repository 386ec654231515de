//! Tiers, overrides, the local bucket and the candidate beside the limit's own quota.
//!
//! Tiers and overrides are decided on the state of the limit's own quota, so they must be counted alike.
//! Must not know: how a quota is chosen.

use std::collections::HashMap;

use super::Checked;
use super::quota::{capacity, main_quotas};
use crate::attributes::Attribute;
use crate::model::{Algorithm, Amount, KeyPart, Period, QuotaSpec};
use crate::read::Report;
use crate::source::{At, SourceLocation};
use crate::words;

pub(super) fn check(limit: &Checked<'_>, report: &mut Report) {
    if limit.rule.levels.is_empty() {
        for (of, quota) in main_quotas(limit).iter().skip(1) {
            alike(limit, of, quota, report);
        }
    }
    names(limit, report);
    overrides(limit, report);
    local(limit, report);
    candidate(limit, report);
}

fn alike(limit: &Checked<'_>, of: &str, quota: &At<QuotaSpec>, report: &mut Report) {
    let own = &limit.rule.quota.value;
    let other = &quota.value;
    if other.amount == Amount::Unlimited {
        return;
    }
    if other.algorithm != own.algorithm {
        report.say(
            quota.place,
            format!(
                "{}: {of} is counted by another algorithm, and both share one state",
                limit.name()
            ),
            "choose the algorithm for the whole limit; `candidate` tries another one",
        );
    } else if other.unit != own.unit {
        report.say(
            quota.place,
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
fn several(count: usize, what: &str) -> String {
    match count {
        0 => format!("no {what}s"),
        1 => format!("1 {what}"),
        _ => format!("{count} {what}s"),
    }
}

/// Values that differ only in how they are written name the same tier.
fn names(limit: &Checked<'_>, report: &mut Report) {
    let mut seen: HashMap<&str, SourceLocation> = HashMap::new();
    for (name, _) in limit.rule.tiers.iter().flat_map(|tiers| &tiers.tiers) {
        let first = *seen.entry(&name.value).or_insert(name.place);
        if first != name.place {
            report.say(
                name.place,
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

fn overrides(limit: &Checked<'_>, report: &mut Report) {
    let parts = &limit.rule.key;
    let mut seen: HashMap<Vec<String>, SourceLocation> = HashMap::new();
    for one in &limit.rule.overrides {
        let (values, place) = (&one.key.value, one.key.place);
        if values.len() != parts.len() {
            let named: Vec<String> = parts
                .iter()
                .map(|part| part.attribute.value.to_string())
                .collect();
            report.say(
                place,
                format!(
                    "{}: an override has {}, and the key has {}",
                    limit.name(),
                    several(values.len(), "value"),
                    several(parts.len(), "part")
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
            match spelled(part, value) {
                Ok(value) => key.push(value),
                Err(wrong) => report.wrong(place, "key", wrong),
            }
        }
        let first = *seen.entry(key).or_insert(place);
        if first != place {
            report.say(
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
fn spelled(part: &KeyPart, value: &str) -> Result<String, words::Wrong> {
    Ok(match part.attribute.value {
        Attribute::Ip => words::address(value)?.to_string(),
        _ if part.lower => value.to_ascii_lowercase(),
        _ => value.to_owned(),
    })
}

/// A local bucket in front of a global one only saves asking; if it is tighter, the global one is never reached.
fn local(limit: &Checked<'_>, report: &mut Report) {
    let Some(local) = &limit.rule.local else {
        return;
    };
    let name = limit.name();
    if limit.rule.quota.value.algorithm.counts_places() {
        report.say(
            local.place,
            format!("{name}: `local` is a rate, and the limit counts how many at once"),
            "leave `local` out, or write a limit of its own for the rate",
        );
        return;
    }
    let Some((local_units, local_span)) = plain_bucket(&local.value) else {
        report.say(
            local.place,
            format!("{name}: `local` must be one token bucket"),
            "write one rate, with or without `burst`",
        );
        return;
    };
    for (of, quota) in main_quotas(limit) {
        let Some((units, span)) = slowest(&quota.value) else {
            continue;
        };
        let slower =
            u128::from(local_units) * u128::from(span) < u128::from(units) * u128::from(local_span);
        let smaller = matches!((capacity(local, 0), capacity(quota, 0)), (Some(local), Some(main)) if local < main);
        if slower || smaller {
            let than = if of == name { "the limit" } else { of.as_str() };
            report.say(
                local.place,
                format!("{name}: `local` is tighter than {than}, so each node alone would deny what all may have"),
                if slower { "raise its rate to at least the limit's" } else { "raise its `burst` to at least the limit's" },
            );
            return;
        }
    }
}

fn plain_bucket(quota: &QuotaSpec) -> Option<(u64, u64)> {
    match &quota.amount {
        Amount::Rates(rates) if rates.len() == 1 && quota.algorithm == Algorithm::TokenBucket => {
            slowest(quota)
        }
        _ => None,
    }
}

/// The rate that decides in the long run: units and nanoseconds.
fn slowest(quota: &QuotaSpec) -> Option<(u64, u64)> {
    let nanos = |period: Period| period.without_calendar().as_nanos();
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

fn candidate(limit: &Checked<'_>, report: &mut Report) {
    let Some(candidate) = &limit.rule.candidate else {
        return;
    };
    let own = &limit.rule.quota;
    let name = limit.name();
    if candidate == own {
        report.say(
            candidate.place,
            format!("{name}: `candidate` is the same as the enforced quota, so they never differ"),
            "change its rate or algorithm, or leave it out",
        );
    } else if candidate.value.amount == Amount::Unlimited {
        report.say(
            candidate.place,
            format!("{name}: `candidate` is unlimited, so it is nothing to compare with"),
            "give it a rate; `mode: shadow` tries the limit itself",
        );
    } else if candidate.value.algorithm.counts_places() != own.value.algorithm.counts_places() {
        report.say(
            candidate.place,
            format!(
                "{name}: one of the limit and its `candidate` counts how many at once, the other how many per period"
            ),
            "try it as a limit of its own with `mode: shadow`",
        );
    } else if candidate.value.unit != own.value.unit {
        report.say(
            candidate.place,
            format!(
                "{name}: `candidate` counts {}, and the limit counts {}",
                candidate.value.unit.name(),
                own.value.unit.name()
            ),
            "count the same unit in both",
        );
    }
}
