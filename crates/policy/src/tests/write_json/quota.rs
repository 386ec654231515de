//! Writes quotas, tiers and overrides.

use tollgate_core::Nanos;

use super::value::{Json, map, number, text, texts};
use crate::model::{
    Amount, Burst, ComputedRate, Period, QuotaOverride, QuotaSpec, RateSpec, Shares, Tiers,
};

pub(super) fn tiers(tiers: &Tiers, own: &QuotaSpec) -> Json {
    let mut fields = vec![("by", Some(text(&tiers.by.value)))];
    let each = tiers.tiers.iter();
    fields.extend(each.map(|(name, at)| (&*name.value, Some(alternative_quota(&at.value, own)))));
    map(fields)
}

pub(super) fn shares(shares: &Shares) -> Json {
    let mut fields = vec![("by", Some(text(&shares.by.value)))];
    let each = shares.shares.iter();
    fields.extend(each.map(|(name, part)| (&*name.value, Some(text(part.value)))));
    map(fields)
}

pub(super) fn quota_override(one: &QuotaOverride, own: &QuotaSpec) -> Json {
    let mut fields = vec![("key", Some(texts(&one.key.value)))];
    fields.extend(quota(&one.quota.value, Some(own)));
    map(fields)
}

pub(super) fn alternative_quota(other: &QuotaSpec, own: &QuotaSpec) -> Json {
    let unlimited = QuotaSpec {
        amount: Amount::Unlimited,
        burst: None,
        ..own.clone()
    };
    if *other == unlimited {
        return text("unlimited");
    }
    map(quota(other, Some(own)))
}

/// The fields of a quota. Inside a limit, all fields that differ from a default there or here are written, so that none
/// is inherited by accident.
pub(super) fn quota(
    quota: &QuotaSpec,
    own: Option<&QuotaSpec>,
) -> Vec<(&'static str, Option<Json>)> {
    let mut fields = match &quota.amount {
        Amount::Rates(rates) => {
            let rates = rates.iter().map(|at| rate(&at.value));
            vec![("rate", Some(texts(rates)))]
        }
        Amount::Concurrency { permits, lease } => vec![
            ("concurrency", Some(number(*permits))),
            ("lease", Some(text(duration(*lease)))),
        ],
        Amount::Computed(one) => vec![("rate", Some(computed(one)))],
        Amount::Unlimited => vec![("unlimited", Some(Json::Bare("true".to_owned())))],
    };
    let burst = quota.burst.as_ref().map(|burst| match burst.value {
        Burst::Units(units) => number(units),
        Burst::Auto => text("auto"),
    });
    let is_named =
        !quota.algorithm.is_concurrency() && is_explicit(quota, own, |one| one.algorithm);
    let minutes = quota.utc_offset_minutes;
    let offset = || {
        let sign = if minutes < 0 { '-' } else { '+' };
        let minutes = minutes.unsigned_abs();
        text(format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60))
    };
    let details = &quota.details;
    let keyword = |is_set: bool, name: &str| is_set.then(|| text(name));
    fields.extend([
        ("window", keyword(details.is_first_hit(), "first_hit")),
        ("refill", keyword(details.is_stepped(), "interval")),
        ("initial", details.initial.map(|units| number(units.value))),
        (
            "remember",
            details.remember.map(|span| text(duration(span.value))),
        ),
        ("algorithm", is_named.then(|| text(quota.algorithm.name()))),
        ("burst", burst),
        (
            "unit",
            is_explicit(quota, own, |one| one.unit).then(|| text(quota.unit.name())),
        ),
        (
            "utc_offset",
            is_explicit(quota, own, |one| one.utc_offset_minutes).then(offset),
        ),
    ]);
    fields
}

/// Whether a property differs from its default, in this quota or in the limit's own.
pub(super) fn is_explicit<T: Default + PartialEq>(
    quota: &QuotaSpec,
    own: Option<&QuotaSpec>,
    property: impl Fn(&QuotaSpec) -> T,
) -> bool {
    property(quota) != T::default() || own.is_some_and(|own| property(own) != T::default())
}

pub(super) fn computed(rate_of: &ComputedRate) -> Json {
    map(vec![
        ("base", Some(text(rate(&rate_of.base.value)))),
        ("each", Some(text(rate(&rate_of.each.value)))),
        ("times", Some(text(&rate_of.times))),
        ("at_most", Some(text(rate(&rate_of.at_most.value)))),
    ])
}

pub(super) fn rate(rate: &RateSpec) -> String {
    let period = match rate.period {
        Period::Month => "month".to_owned(),
        Period::Year => "year".to_owned(),
        Period::Span(span) => duration(span),
    };
    format!("{}/{period}", rate.units)
}

/// `1h30m`
pub(super) fn duration(span: Nanos) -> String {
    let mut rest = span.as_nanos();
    let mut out = String::new();
    for (nanos, name) in [
        (3_600_000_000_000, "h"),
        (1_000_000_000, "s"),
        (1_000_000, "ms"),
        (1_000, "us"),
        (1, "ns"),
    ] {
        if rest >= nanos {
            out.push_str(&format!("{}{name}", rest / nanos));
            rest %= nanos;
        }
    }
    if out.is_empty() { "0s".to_owned() } else { out }
}
