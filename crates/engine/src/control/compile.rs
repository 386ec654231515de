//! Compiles the operators' state into the snapshot that decisions of one generation read.
//!
//! Must not know: which operator set it, when, or why.

use std::collections::HashMap;

use tollgate_core::Timestamp;
use tollgate_policy::grammar;
use tollgate_policy::model::ShedMechanism;
use tollgate_policy::rules::{MeterRef, MeterRole, SelectedQuota};
use tollgate_store::IdentifiedLimit;

use super::operator_state::{Block, KeyIdentity, OperatorState, key_spec_text};
use super::override_quota::resolve_override;
use crate::generation::Generation;
use crate::override_snapshot::{KeyOverrides, OverrideExpiry, OverrideSnapshot};

/// The override snapshot of a generation, and the quotas that the store has to be told about.
///
/// An override has no effect while the generation lacks its limit, or builds that limit's keys differently. It applies
/// again with a generation that matches.
pub(crate) fn compile_snapshot(
    generation: &Generation,
    controls: &OperatorState,
) -> (OverrideSnapshot, Vec<IdentifiedLimit>) {
    let rules = generation.rules().rules().iter().enumerate();
    let indexes: HashMap<&str, usize> = rules.map(|(index, rule)| (&*rule.name, index)).collect();
    let mut snapshot = OverrideSnapshot {
        global: controls.everything.mode_override(),
        ..OverrideSnapshot::default()
    };
    let mut quotas = Vec::new();
    for mechanism in ShedMechanism::ALL {
        let switch = controls.limits.get(mechanism.switch_name());
        if let (Some(switch), Some(place)) =
            (switch, snapshot.mechanisms.get_mut(mechanism.index()))
        {
            *place = switch.mode_override();
        }
    }
    for (name, switch) in &controls.limits {
        if let Some(index) = indexes.get(&**name) {
            snapshot.rules.entry(*index).or_default().mode_override = switch.mode_override();
        }
    }
    for key_override in &controls.overrides {
        let Some((index, key)) = find_rule_and_digest(generation, &indexes, &key_override.key)
        else {
            continue;
        };
        // After a reload the limit may no longer support this quota.
        let Ok(quota_selection) = resolve_override(generation, index, &key_override.quota) else {
            let (limit, quota) = (&key_override.key.limit, &key_override.quota);
            tracing::warn!(%limit, %quota, "override has no effect: the limit cannot count its quota");
            continue;
        };
        quotas.extend(override_limits(generation, index, &quota_selection));
        key_overrides_mut(&mut snapshot, index, key).quota =
            Some((until(key_override.until), quota_selection));
    }
    for block in &controls.blocks {
        match block {
            Block::Key { key, until: end } => {
                if let Some((index, key)) = find_rule_and_digest(generation, &indexes, key) {
                    key_overrides_mut(&mut snapshot, index, key).blocked = Some(until(*end));
                }
            }
            Block::Address {
                address,
                until: end,
            } => {
                if let Ok(network) = grammar::parse_network(address) {
                    snapshot.addresses.insert(network, until(*end));
                }
            }
        }
    }
    (snapshot, quotas)
}

fn until(nanos: Option<u64>) -> OverrideExpiry {
    OverrideExpiry(nanos.map(Timestamp::from_nanos))
}

fn key_overrides_mut(
    snapshot: &mut OverrideSnapshot,
    index: usize,
    key: [u8; 16],
) -> &mut KeyOverrides {
    let of_rule = snapshot.rules.entry(index).or_default();
    of_rule.keys.entry(key).or_default()
}

/// The rule's index and the key's digest, if the generation builds such keys.
fn find_rule_and_digest(
    generation: &Generation,
    indexes: &HashMap<&str, usize>,
    key: &KeyIdentity,
) -> Option<(usize, [u8; 16])> {
    let index = *indexes.get(&*key.limit)?;
    let rule = generation.rules().rules().get(index)?;
    let mut meters = rule.meters.iter().enumerate();
    meters.find(|(meter, definition)| {
        let meter_ref = MeterRef {
            rule: index,
            meter: *meter,
        };
        let key_spec = generation.rules().key_spec(meter_ref);
        definition.role == MeterRole::Main
            && key_spec.is_some_and(|spec| *key_spec_text(spec) == *key.made_of)
    })?;
    Some((index, key.digest()?))
}

/// The override's quotas with the ids of the states that count them.
fn override_limits(
    generation: &Generation,
    index: usize,
    quota_selection: &[Option<SelectedQuota>],
) -> Vec<IdentifiedLimit> {
    let meters = generation.rule(index).map(|(_, entry)| &entry.meters);
    let pairs = meters.into_iter().flatten().zip(quota_selection);
    let limits = pairs.filter_map(|(meter, quota_selection)| match quota_selection {
        Some(SelectedQuota::Computed(limit)) => Some(IdentifiedLimit {
            id: meter.id,
            limit: *limit,
        }),
        _ => None,
    });
    limits.collect()
}
