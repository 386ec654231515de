//! What a limit means for a fleet: the over-admission bound, the fallback quota of each node, and the round trips.
//!
//! Must not know: how quotas are described.

use std::collections::BTreeMap;

use serde::Serialize;

use super::window::WindowExplanation;
use crate::compile::full_key;
use crate::humanize::{format_big_number, format_duration, format_number};
use crate::model::{Algorithm, Consistency, KeyPart, LimitRule, Mode, OnStoreFailure, Policy};
use tollgate_core::Nanos;

/// By how much a fleet may exceed the quota.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverAdmission {
    /// The bound in units, if the number of nodes is known.
    pub units: Option<u64>,
    /// The bound for each node beyond the first.
    pub per_node: u64,
    /// A description for people.
    pub words: String,
}

/// The bound of a limit with these windows. Each node beyond the first may spend a whole burst and what refills until
/// the next reconciliation.
pub(super) fn over_admission(
    consistency: Consistency,
    nodes: Option<u32>,
    windows: &[WindowExplanation],
) -> OverAdmission {
    let Consistency::Async(interval) = consistency else {
        let words = match consistency {
            Consistency::Leased => "over-admission bound 0 (admits less while leases are out)",
            _ => "over-admission bound 0",
        };
        return OverAdmission {
            units: Some(0),
            per_node: 0,
            words: words.to_owned(),
        };
    };
    let per_node = windows
        .iter()
        .map(|window| {
            window
                .at_once
                .saturating_add(refilled_units(window, interval))
        })
        .max()
        .unwrap_or(0);
    let units = nodes.map(|nodes| u64::from(nodes.saturating_sub(1)).saturating_mul(per_node));
    let each = format_number(per_node);
    let every = format_duration(interval);
    let words = match (units, nodes) {
        (Some(units), Some(nodes)) => format!(
            "over-admission bound {} ({} other nodes × {each}, if they reconcile every {every})",
            format_number(units),
            format_number(nodes.saturating_sub(1).into())
        ),
        _ => format!(
            "over-admission bound {each} for each node beyond the first, if they reconcile every {every}"
        ),
    };
    OverAdmission {
        units,
        per_node,
        words,
    }
}

/// What a window refills in this time, rounded up.
fn refilled_units(window: &WindowExplanation, time: Nanos) -> u64 {
    let time = u128::from(time.as_nanos());
    let units = match (window.every_ns, window.period_ns) {
        (Some(every), _) => time
            .div_ceil(u128::from(every.max(1)))
            .saturating_mul(window.block.into()),
        (None, Some(period)) => time
            .saturating_mul(window.units.into())
            .div_ceil(u128::from(period.max(1))),
        (None, None) => 0,
    };
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// Describes the decision while the store does not answer.
pub(super) fn describe_store_failure(
    limit: &LimitRule,
    nodes: Option<u32>,
    windows: &[WindowExplanation],
) -> String {
    match limit.on_store_failure {
        OnStoreFailure::Open => "without the store: admits everything".to_owned(),
        OnStoreFailure::Closed => "without the store: refuses with 503".to_owned(),
        OnStoreFailure::Local => {
            let count = nodes.unwrap_or(1).max(1);
            let shares: Vec<_> = windows
                .iter()
                .map(|window| describe_fallback(window, count))
                .collect();
            let of = match nodes {
                None => "1 node, because `fleet.nodes` is not set".to_owned(),
                Some(1) => "1 node".to_owned(),
                Some(nodes) => format!("{} nodes", format_number(nodes.into())),
            };
            if shares.is_empty() {
                return "without the store: admits everything".to_owned();
            }
            let outage = match limit.consistency.value {
                Consistency::Exact | Consistency::Leased => format!(
                    "; an outage adds at most {}, missed deadlines at most half of the quota",
                    format_number(outage_units(windows, count))
                ),
                Consistency::Async(_) => String::new(),
            };
            format!(
                "without the store: each node {} (half of the quota over {of}){outage}",
                shares.join(", and ")
            )
        }
    }
}

/// The most units beyond the quota after an outage: the fallback quotas of all nodes, and what the store refilled
/// meanwhile. Of several windows the largest bound counts, so it holds for each of them.
fn outage_units(windows: &[WindowExplanation], nodes: u32) -> u64 {
    let bounds = windows.iter().map(|window| {
        let shares = fallback_share(window.at_once, nodes).saturating_mul(nodes.into());
        shares.saturating_add(window.at_once)
    });
    bounds.max().unwrap_or(0)
}

/// The part of these units that one node may spend without the store.
fn fallback_share(units: u64, nodes: u32) -> u64 {
    match units {
        0 => 0,
        _ => (units / 2 / u64::from(nodes)).max(1),
    }
}

fn describe_fallback(window: &WindowExplanation, nodes: u32) -> String {
    let part = |units: u64| fallback_share(units, nodes);
    let units = part(window.units);
    if units == 0 {
        return "denies everything".to_owned();
    }
    let named = Algorithm::BY_NAME
        .iter()
        .find(|(name, _)| *name == window.algorithm);
    let stand_in = named.map_or("", |(_, algorithm)| algorithm.properties().fallback_note);
    match &window.period {
        Some(period) => format!(
            "at most {} at once, {} per {period}{stand_in}",
            format_number(part(window.at_once)),
            format_number(units)
        ),
        None => format!("at most {} at the same time", format_number(units)),
    }
}

/// Limits whose states are in one cluster slot and take one round trip.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SlotExplanation {
    /// The key or the `colocate` attribute that they share.
    pub by: String,
    /// The names of the limits, with the level if there are several.
    pub limits: Vec<String>,
}

/// The slots of a request that all limits apply to.
pub(super) fn explain_slots(policy: &Policy) -> Vec<SlotExplanation> {
    let mut slots: BTreeMap<String, SlotExplanation> = BTreeMap::new();
    let mut order = Vec::new();
    for limit in &policy.limits {
        if !uses_store(policy, limit) {
            continue;
        }
        for (name, tag, by) in slot_states(limit) {
            let slot = slots.entry(tag.clone()).or_insert_with(|| {
                order.push(tag);
                SlotExplanation {
                    by,
                    limits: Vec::new(),
                }
            });
            if !slot.limits.contains(&name) {
                slot.limits.push(name);
            }
        }
    }
    order.iter().filter_map(|tag| slots.remove(tag)).collect()
}

/// The number of round trips of a limit per decision.
pub(super) fn round_trips(policy: &Policy, limit: &LimitRule) -> u64 {
    if !uses_store(policy, limit) {
        return 0;
    }
    let mut tags: Vec<_> = slot_states(limit)
        .into_iter()
        .map(|(_, tag, _)| tag)
        .collect();
    tags.sort();
    tags.dedup();
    tags.len() as u64
}

fn uses_store(policy: &Policy, limit: &LimitRule) -> bool {
    asks_store_per_decision(limit) && limit.mode.max(policy.mode) != Mode::Off
}

/// Whether the limit calls the store for each decision. Leased fixed windows do, because they cannot be leased.
fn asks_store_per_decision(limit: &LimitRule) -> bool {
    match limit.consistency.value {
        Consistency::Exact => true,
        Consistency::Leased => !limit.quota.value.algorithm.properties().can_be_leased,
        Consistency::Async(_) => false,
    }
}

/// The states of a limit: name, slot tag, and the description of the tag.
fn slot_states(limit: &LimitRule) -> Vec<(String, String, String)> {
    let name = limit.name.value.to_string();
    if let Some(by) = &limit.colocate {
        let by = format!("colocate {}", by.value);
        return vec![(name, by.clone(), by)];
    }
    let of = |name: String, key: &[KeyPart]| {
        let by = super::matching::describe_key(key);
        // The meaning of a missing attribute is not part of the encoding, so it does not change the slot.
        (name, by.clone(), by)
    };
    if limit.levels.is_empty() {
        let mut states = vec![of(name.clone(), &limit.key)];
        if let Some(distinct) = &limit.distinct {
            let by = format!(
                "{} and each value of {}",
                super::matching::describe_key(&limit.key),
                distinct.value
            );
            states.push((format!("{name} (values seen)"), by.clone(), by));
        }
        return states;
    }
    let whole = full_key(limit);
    let mut taken = limit.key.len();
    limit
        .levels
        .iter()
        .map(|level| {
            taken += level.key.len();
            let key = whole.get(..taken).unwrap_or(&whole);
            of(format!("{name}/{}", level.name.value), key)
        })
        .collect()
}

/// Describes the round trips.
pub(super) fn describe_round_trips(limit: &LimitRule, round_trips: u64) -> String {
    let words = match (limit.consistency.value, round_trips) {
        (Consistency::Leased, _) if !asks_store_per_decision(limit) => {
            "no round trip while a lease lasts".to_owned()
        }
        (Consistency::Async(_), _) => "no round trip".to_owned(),
        (_, 1) => "1 round trip".to_owned(),
        (_, many) => format!("{} round trips", format_big_number(many.into())),
    };
    match (&limit.spillover, &limit.shares) {
        (Some(_), _) => format!("{words}, and one more for a request that spills over"),
        (_, Some(_)) => format!("{words}, and one more for an owner that borrows"),
        (None, None) => words,
    }
}
