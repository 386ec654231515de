//! `concurrency`: limits the number of permits held at the same time. A permit expires with its lease.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Concurrency, InvalidQuota, Nanos};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext};
use crate::humanize::{format_amount, format_duration};

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "concurrency",
    guarantee: "a maximum at the same time",
    why_not_leased: Some("permits are held, not spent, so they cannot be leased in advance"),
    why_not_async: Some("the number of held permits must be exact"),
    bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(lease: Nanos, units: u64) -> Result<Limit, InvalidQuota> {
    Ok(Limit::new(Concurrency::new(units, lease)?))
}

/// A collection plus one entry per lease.
const fn bytes(entries: u64) -> (u64, u64) {
    (
        entries.saturating_mul(32).saturating_add(203),
        entries.saturating_mul(29).saturating_add(133),
    )
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::Concurrency(permits) = quota else {
        return None;
    };
    Some(format!(
        "at most {} at the same time, each held for at most {} unless it is renewed",
        format_amount(permits.limit(), explained.unit()),
        format_duration(permits.lease_duration())
    ))
}
