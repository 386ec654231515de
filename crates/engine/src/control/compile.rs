//! What operators have said, made ready for the decisions of one generation.
//!
//! Must not know: who said it, when it was said.

use std::collections::HashMap;

use tollgate_core::Timestamp;
use tollgate_policy::rules::{Chosen, MeterRef, Role};
use tollgate_policy::words;
use tollgate_store::Ruled;

use super::controls::{Block, Controls, NamedKey, signature};
use super::quota::chosen;
use crate::generation::Generation;
use crate::override_snapshot::{KeyOverrides, OverrideExpiry, OverrideSnapshot};

/// The snapshot of a generation, and the quotas on it that a store has to be told about. Overrides of limits that
/// the generation does not have, or whose keys it makes otherwise, have no effect until a generation has them again.
pub(crate) fn snapshot(
    generation: &Generation,
    controls: &Controls,
) -> (OverrideSnapshot, Vec<Ruled>) {
    let rules = generation.rules().rules().iter().enumerate();
    let indexes: HashMap<&str, usize> = rules.map(|(index, rule)| (&*rule.name, index)).collect();
    let mut snapshot = OverrideSnapshot {
        everything: controls.everything.mode_override(),
        ..OverrideSnapshot::default()
    };
    let mut quotas = Vec::new();
    for (name, switch) in &controls.limits {
        if let Some(index) = indexes.get(&**name) {
            snapshot.rules.entry(*index).or_default().mode_override = switch.mode_override();
        }
    }
    for one in &controls.overrides {
        let Some((index, key)) = find(generation, &indexes, &one.key) else {
            continue;
        };
        // A reload may have changed the limit so that it no longer has such quotas.
        let Ok(chosen) = chosen(generation, index, &one.quota) else {
            tracing::warn!(limit = %one.key.limit, quota = %one.quota, "an override rests: the limit counts otherwise now");
            continue;
        };
        quotas.extend(to_learn(generation, index, &chosen));
        of_key(&mut snapshot, index, key).quota = Some((until(one.until), chosen));
    }
    for block in &controls.blocks {
        match block {
            Block::Key { key, until: end } => {
                if let Some((index, key)) = find(generation, &indexes, key) {
                    of_key(&mut snapshot, index, key).blocked = Some(until(*end));
                }
            }
            Block::Address {
                address,
                until: end,
            } => {
                if let Ok(network) = words::network(address) {
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

fn of_key(snapshot: &mut OverrideSnapshot, index: usize, key: [u8; 16]) -> &mut KeyOverrides {
    let of_rule = snapshot.rules.entry(index).or_default();
    of_rule.keys.entry(key).or_default()
}

/// The rule and the digest of the key, if the generation makes such keys.
fn find(
    generation: &Generation,
    indexes: &HashMap<&str, usize>,
    key: &NamedKey,
) -> Option<(usize, [u8; 16])> {
    let index = *indexes.get(&*key.limit)?;
    let rule = generation.rules().rules().get(index)?;
    let mut meters = rule.meters.iter().enumerate();
    meters.find(|(meter, of)| {
        let place = MeterRef {
            rule: index,
            meter: *meter,
        };
        let recipe = generation.rules().recipe(place);
        of.role == Role::Main && recipe.is_some_and(|recipe| *signature(recipe) == *key.made_of)
    })?;
    Some((index, key.digest()?))
}

/// The quotas of an override with the numbers of the states that they are counted in.
fn to_learn(generation: &Generation, index: usize, chosen: &[Option<Chosen>]) -> Vec<Ruled> {
    let meters = generation.rule(index).map(|(_, entry)| &entry.meters);
    let pairs = meters.into_iter().flatten().zip(chosen);
    let ruled = pairs.filter_map(|(metered, chosen)| match chosen {
        Some(Chosen::Computed(limit)) => Some(Ruled {
            id: metered.id,
            limit: *limit,
        }),
        _ => None,
    });
    ruled.collect()
}
