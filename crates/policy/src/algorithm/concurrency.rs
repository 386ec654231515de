//! `concurrency`: so many at once, each held at most as long as its lease.
//!
//! Must not know: other algorithms.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Concurrency, InvalidQuota, Nanos};

use super::{Explained, Properties, Refill, StateSharing, never};
use crate::words_for::{amount, span};

pub(super) const PROPERTIES: Properties = Properties {
    name: "concurrency",
    promise: "so many at the same time",
    burst: None,
    // `wait` beside `concurrency` has a message of its own.
    can_promise_instants: true,
    follows_calendar: false,
    has_ceiling: false,
    not_leased: Some("places are held, not spent, so they cannot be taken in advance"),
    is_lent: true,
    not_async: Some("how many are held at once must be known at once"),
    fallback: "",
    sharing: StateSharing::Any,
    needs_larger_blocks: never,
    refill,
    most_in_any: |_, _, _| None,
    bytes,
    words,
};

pub(super) fn build(lease: Nanos, units: u64) -> Result<Limit, InvalidQuota> {
    Ok(Limit::new(Concurrency::new(units, lease)?))
}

fn refill(_: &Quota, units: u64, _: u64) -> Option<Refill> {
    Some(Refill {
        every: None,
        block: 1,
        at_once: units,
    })
}

/// A collection with its leases.
const fn bytes(entries: u64) -> (u64, u64) {
    (
        entries.saturating_mul(32).saturating_add(203),
        entries.saturating_mul(29).saturating_add(133),
    )
}

fn words(quota: &Quota, explained: &Explained<'_>) -> Option<String> {
    let Quota::Concurrency(places) = quota else {
        return None;
    };
    Some(format!(
        "at most {} at the same time, each held for at most {} unless it is renewed",
        amount(places.limit(), explained.unit()),
        span(places.lease())
    ))
}
