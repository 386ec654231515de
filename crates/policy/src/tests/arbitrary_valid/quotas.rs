//! Random quotas.

use proptest::option;
use proptest::prelude::*;
use proptest::sample::select;
use tollgate_core::{Nanos, QuotaUnit};

use super::matching::texts_attribute;
use crate::model::{Algorithm, Amount, Burst, ComputedRate, Period, QuotaSpec, RateSpec};

pub(super) fn span() -> impl Strategy<Value = Nanos> {
    select(vec![1_u64, 10, 60, 90, 900, 3_600, 86_400, 604_800]).prop_map(Nanos::from_secs)
}

pub(super) fn rate() -> impl Strategy<Value = RateSpec> {
    let period = prop_oneof![9 => span().prop_map(Period::Span), 1 => Just(Period::Year)];
    (100..1_000_000_u64, period).prop_map(|(units, period)| RateSpec { units, period })
}

/// A rate quota.
pub(super) fn rate_quota() -> impl Strategy<Value = QuotaSpec> {
    let bucket =
        (rate(), option::of(1_000_000..2_000_000_u64)).prop_map(|(rate, burst)| QuotaSpec {
            burst: burst.map(|units| Burst::Units(units).into()),
            ..quota(Amount::Rates(vec![rate.into()]))
        });
    let auto = rate().prop_map(|rate| QuotaSpec {
        burst: Some(Burst::Auto.into()),
        ..quota(Amount::Rates(vec![rate.into()]))
    });
    let windows = (
        100..1_000_u64,
        select(vec![Period::Month, Period::Span(Nanos::from_secs(86_400))]),
        -14 * 4..14 * 4_i16,
    )
        .prop_map(|(units, period, quarters)| QuotaSpec {
            algorithm: Algorithm::FixedWindow,
            utc_offset_minutes: quarters * 15,
            ..quota(Amount::Rates(vec![RateSpec { units, period }.into()]))
        });
    let other = (
        100..1_000_u64,
        span(),
        select(vec![
            Algorithm::SlidingWindow,
            Algorithm::SlidingLog,
            Algorithm::LeakyBucket,
        ]),
    )
        .prop_map(|(units, span, algorithm)| QuotaSpec {
            algorithm,
            ..quota(Amount::Rates(vec![
                RateSpec {
                    units,
                    period: Period::Span(span),
                }
                .into(),
            ]))
        });
    let several = (100..1_000_u64, 2_000..9_000_u64).prop_map(|(second, hour)| {
        let rate = |units, secs| {
            RateSpec {
                units,
                period: Period::Span(Nanos::from_secs(secs)),
            }
            .into()
        };
        quota(Amount::Rates(vec![rate(second, 1), rate(hour, 3_600)]))
    });
    prop_oneof![bucket, auto, windows, other, several]
}

pub(super) fn quota(amount: Amount) -> QuotaSpec {
    QuotaSpec {
        algorithm: Algorithm::TokenBucket,
        amount,
        burst: None,
        unit: QuotaUnit::Requests,
        utc_offset_minutes: 0,
        details: crate::model::QuotaDetails::default(),
    }
}

/// Any quota of a limit.
pub(super) fn own_quota() -> impl Strategy<Value = QuotaSpec> {
    let at_once = (1..500_u64, span()).prop_map(|(permits, lease)| QuotaSpec {
        algorithm: Algorithm::Concurrency,
        ..quota(Amount::Concurrency { permits, lease })
    });
    let computed = (100..900_u64, 1..9_u64, texts_attribute()).prop_map(|(base, each, times)| {
        let rate = |units| {
            RateSpec {
                units,
                period: Period::Span(Nanos::from_secs(3_600)),
            }
            .into()
        };
        quota(Amount::Computed(ComputedRate {
            base: rate(base),
            each: rate(each),
            times,
            at_most: rate(base * 10),
        }))
    });
    prop_oneof![6 => rate_quota(), 1 => at_once, 1 => computed]
}

/// A quota of the same kind with another number, for tiers and overrides.
pub(super) fn same_kind(own: &QuotaSpec, units: u64) -> QuotaSpec {
    let mut other = own.clone();
    match &mut other.amount {
        Amount::Rates(rates) => {
            for rate in rates {
                rate.value.units += units;
            }
        }
        Amount::Concurrency { permits, .. } => *permits += units,
        Amount::Computed(computed) => computed.at_most.value.units += units,
        Amount::Unlimited => {}
    }
    other
}

pub(super) fn unlimited(own: &QuotaSpec) -> QuotaSpec {
    QuotaSpec {
        amount: Amount::Unlimited,
        burst: None,
        ..own.clone()
    }
}

pub(super) const LOCAL: RateSpec = RateSpec {
    units: 2_000_000,
    period: Period::Span(Nanos::from_secs(1)),
};

/// A candidate with what it inherits: `burst: auto` applies to every bucket of a limit.
pub(super) fn candidate_beside(own: &QuotaSpec, mut candidate: QuotaSpec) -> QuotaSpec {
    let auto = own.burst.filter(|burst| burst.value == Burst::Auto);
    if matches!(
        candidate.algorithm,
        Algorithm::TokenBucket | Algorithm::LeakyBucket
    ) {
        candidate.burst = candidate.burst.or(auto);
    }
    candidate
}
