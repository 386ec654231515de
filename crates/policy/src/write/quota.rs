//! Quotas as the fields of a file.
//!
//! Must not know: which limit a quota belongs to.

use tollgate_core::Nanos;

use crate::model::{Algorithm, Amount, Burst, Computed, Override, QuotaSpec, Tiers};

use super::out::{Fields, Out};
use super::words;

/// How long a place is held where a file does not say.
const LEASE: Nanos = Nanos::from_secs(60);

/// Adds the fields of a limit's or a level's own quota.
pub(super) fn own(fields: &mut Fields, quota: &QuotaSpec) {
    add(fields, quota, None);
}

/// A quota beside a limit's own: in one word where that says it all.
pub(super) fn beside(quota: &QuotaSpec, own: &QuotaSpec) -> Out {
    let only_unlimited = QuotaSpec {
        amount: Amount::Unlimited,
        burst: None,
        ..own.clone()
    };
    if *quota == only_unlimited {
        return Out::word("unlimited");
    }
    let mut fields = Fields::default();
    add(&mut fields, quota, Some(own));
    match fields.only("rate") {
        Some(rate @ Out::Scalar(_)) => rate.clone(),
        _ => fields.into(),
    }
}

/// Adds the fields of a quota. What a quota takes from the limit that it stands beside is said again, unless it is the
/// default there and here, so that it holds whatever is taken over.
fn add(fields: &mut Fields, quota: &QuotaSpec, beside: Option<&QuotaSpec>) {
    match &quota.amount {
        Amount::Rates(rates) => {
            let rates = rates.iter().map(|rate| Out::word(words::rate(&rate.value)));
            fields.add("rate", Out::one_or_list(rates.collect()));
        }
        Amount::AtOnce { places, lease } => {
            fields.add("concurrency", Out::number(*places));
            // Beside a limit's own quota a lease that is left out is the limit's.
            if *lease != LEASE || beside.is_some() {
                fields.add("lease", Out::word(words::duration(*lease)));
            }
        }
        Amount::Computed(rate) => fields.add("rate", computed(rate)),
        Amount::Unlimited => fields.add("unlimited", Out::word("true")),
    }
    let at_once = matches!(quota.amount, Amount::AtOnce { .. });
    if !at_once && said(quota, beside, |quota| quota.algorithm) {
        fields.some("algorithm", algorithm(quota.algorithm).map(Out::word));
    }
    fields.some(
        "burst",
        quota.burst.as_ref().map(|burst| match burst.value {
            Burst::Units(units) => Out::number(units),
            Burst::Auto => Out::word("auto"),
        }),
    );
    if said(quota, beside, |quota| quota.unit) {
        fields.add("unit", Out::word(quota.unit.name()));
    }
    if said(quota, beside, |quota| quota.utc_offset_minutes) {
        fields.add(
            "utc_offset",
            Out::text(&words::offset(quota.utc_offset_minutes)),
        );
    }
}

/// Whether a property is no default, of this quota or of the one beside it.
fn said<T: Default + PartialEq>(
    quota: &QuotaSpec,
    beside: Option<&QuotaSpec>,
    property: impl Fn(&QuotaSpec) -> T,
) -> bool {
    property(quota) != T::default() || beside.is_some_and(|own| property(own) != T::default())
}

/// The name of an algorithm; `concurrency` is a field of its own.
fn algorithm(algorithm: Algorithm) -> Option<&'static str> {
    match algorithm {
        Algorithm::TokenBucket => Some("token_bucket"),
        Algorithm::LeakyBucket => Some("leaky_bucket"),
        Algorithm::LeakyQueue => Some("leaky_queue"),
        Algorithm::FixedWindow => Some("fixed_window"),
        Algorithm::SlidingWindow => Some("sliding_window"),
        Algorithm::SlidingLog => Some("sliding_log"),
        Algorithm::Concurrency => None,
    }
}

fn computed(rate: &Computed) -> Out {
    let mut fields = Fields::default();
    fields.add("base", Out::word(words::rate(&rate.base.value)));
    fields.add("each", Out::word(words::rate(&rate.each.value)));
    fields.add("times", Out::text(&rate.times.to_string()));
    fields.add("at_most", Out::word(words::rate(&rate.at_most.value)));
    fields.into()
}

pub(super) fn tiers(tiers: &Tiers, own: &QuotaSpec) -> Out {
    let mut fields = Fields::default();
    fields.add("by", Out::text(&tiers.by.value.to_string()));
    for (name, quota) in &tiers.tiers {
        fields.add(&name.value, beside(&quota.value, own));
    }
    fields.into()
}

pub(super) fn overriding(one: &Override, own: &QuotaSpec) -> Out {
    let mut fields = Fields::default();
    let key = one.key.value.iter().map(|value| Out::text(value)).collect();
    fields.add("key", Out::List(key));
    add(&mut fields, &one.quota.value, Some(own));
    fields.into()
}
