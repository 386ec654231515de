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
use crate::desk::{Desk, OfKey, Until};
use crate::generation::Generation;

/// The desk of a generation, and the quotas on it that a store has to be told about. What is said about limits that
/// the generation does not have, or whose keys it makes otherwise, rests until one has them again.
pub(crate) fn desk(generation: &Generation, controls: &Controls) -> (Desk, Vec<Ruled>) {
    let rules = generation.rules().rules().iter().enumerate();
    let indexes: HashMap<&str, usize> = rules.map(|(index, rule)| (&*rule.name, index)).collect();
    let mut desk = Desk {
        everything: controls.everything.lever(),
        ..Desk::default()
    };
    let mut quotas = Vec::new();
    for (name, switch) in &controls.limits {
        if let Some(index) = indexes.get(&**name) {
            desk.rules.entry(*index).or_default().lever = switch.lever();
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
        of_key(&mut desk, index, key).quota = Some((until(one.until), chosen));
    }
    for block in &controls.blocks {
        match block {
            Block::Key { key, until: end } => {
                if let Some((index, key)) = find(generation, &indexes, key) {
                    of_key(&mut desk, index, key).blocked = Some(until(*end));
                }
            }
            Block::Address {
                address,
                until: end,
            } => {
                if let Ok(network) = words::network(address) {
                    desk.addresses.insert(network, until(*end));
                }
            }
        }
    }
    (desk, quotas)
}

fn until(nanos: Option<u64>) -> Until {
    Until(nanos.map(Timestamp::from_nanos))
}

fn of_key(desk: &mut Desk, index: usize, key: [u8; 16]) -> &mut OfKey {
    let of_rule = desk.rules.entry(index).or_default();
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
