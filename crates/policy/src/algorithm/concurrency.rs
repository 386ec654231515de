//! `concurrency`: so many at once, each held at most as long as its lease.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Concurrency, InvalidQuota, Nanos};

use super::{AlgorithmProperties, DEFAULTS, ExplainContext};
use crate::humanize::{format_amount, format_duration};

pub(super) const PROPERTIES: AlgorithmProperties = AlgorithmProperties {
    name: "concurrency",
    guarantee: "so many at the same time",
    why_not_leased: Some("places are held, not spent, so they cannot be taken in advance"),
    why_not_async: Some("how many are held at once must be known at once"),
    bytes,
    describe,
    ..DEFAULTS
};

pub(super) fn build(lease: Nanos, units: u64) -> Result<Limit, InvalidQuota> {
    Ok(Limit::new(Concurrency::new(units, lease)?))
}

/// A collection with its leases.
const fn bytes(entries: u64) -> (u64, u64) {
    (
        entries.saturating_mul(32).saturating_add(203),
        entries.saturating_mul(29).saturating_add(133),
    )
}

fn describe(quota: &Quota, explained: &ExplainContext<'_>) -> Option<String> {
    let Quota::Concurrency(places) = quota else {
        return None;
    };
    Some(format!(
        "at most {} at the same time, each held for at most {} unless it is renewed",
        format_amount(places.limit(), explained.unit()),
        format_duration(places.lease_duration())
    ))
}
