//! The quotas of a policy's limits, and what each needs in order to apply.
//!
//! Must not know: how the search goes.

use std::collections::HashMap;

use super::super::draft::{DraftLimit, KeySpec, RulesDraft};
use super::super::{Meter, MeterRole};
use super::conditions::LimitConditions;
use crate::attributes::Attribute;
use crate::model::{GroupSelection, Mode, OnMissing};

/// The meters of a limit that take room in the batch of all enforced limits.
///
/// All of them count, also those of different tiers: an operator may give one key a quota in each.
pub(super) fn meters(limit: &DraftLimit) -> impl Iterator<Item = (&Meter, &KeySpec)> {
    let is_enforced = limit.rule.mode == Mode::Enforce;
    let meters = limit.rule.meters.iter().zip(&limit.keys);
    // A request has at most one of the shares.
    let mut has_share = false;
    meters.filter(move |(meter, _)| match meter.role {
        MeterRole::Candidate => false,
        MeterRole::Share => is_enforced && !std::mem::replace(&mut has_share, true),
        _ => is_enforced,
    })
}

/// Quotas that apply to the same requests: the meters of one limit with one key.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) limit: usize,
    pub(super) quotas: usize,
    /// The identity of a meter that several limits share. It takes room once.
    pub(super) shared: Option<usize>,
    /// The attributes that its key cannot do without.
    pub(super) required: Vec<usize>,
}

/// All quotas of a policy.
#[derive(Debug, Default)]
pub(super) struct Items {
    /// In the order of their limits.
    pub(super) list: Vec<Item>,
    /// By limit.
    pub(super) conditions: Vec<LimitConditions>,
    /// The group of each limit, if only its narrowest limit applies.
    pub(super) groups: Vec<Option<usize>>,
    pub(super) attributes: Vec<Attribute>,
}

impl Items {
    pub(super) fn new(draft: &RulesDraft) -> Self {
        let mut attributes = AttributeTable::default();
        let mut shared = SharedMeters::default();
        let mut items = Self::default();
        for (index, limit) in draft.limits.iter().enumerate() {
            let group = narrowest_group(draft, limit);
            let conditions = LimitConditions::new(&limit.matching, |one| attributes.index(one));
            let mut by_key: Vec<(&KeySpec, Item)> = Vec::new();
            for (meter, key) in meters(limit) {
                let is_shared = limit.rule.bucket.is_some() && group.is_none();
                let shared = is_shared.then(|| shared.index(meter, key));
                let same = by_key.iter_mut().find(|(spec, _)| *spec == key);
                match same.filter(|_| shared.is_none()) {
                    Some((_, item)) => item.quotas += 1,
                    None => by_key.push((
                        key,
                        Item {
                            limit: index,
                            quotas: 1,
                            shared,
                            required: required_attributes(key, &mut attributes),
                        },
                    )),
                }
            }
            let possible = by_key.into_iter().map(|(_, item)| item);
            let possible = possible.filter(|item| !conditions.excludes(&item.required));
            items.list.extend(possible);
            items.conditions.push(conditions);
            items.groups.push(group);
        }
        items.attributes = attributes.list;
        items
    }
}

/// The meters that several limits share: those with one identity and one key.
#[derive(Default)]
struct SharedMeters<'a> {
    key_specs: Vec<&'a KeySpec>,
    indexes: HashMap<(&'a str, usize), usize>,
}

impl<'a> SharedMeters<'a> {
    fn index(&mut self, meter: &'a Meter, key: &'a KeySpec) -> usize {
        let known = self.key_specs.iter().position(|known| *known == key);
        let spec = known.unwrap_or(self.key_specs.len());
        if known.is_none() {
            self.key_specs.push(key);
        }
        let next = self.indexes.len();
        *self.indexes.entry((&meter.identity, spec)).or_insert(next)
    }
}

/// The attributes of all conditions and keys.
#[derive(Debug, Default)]
struct AttributeTable {
    list: Vec<Attribute>,
    indexes: HashMap<Attribute, usize>,
}

impl AttributeTable {
    fn index(&mut self, attribute: &Attribute) -> usize {
        if let Some(index) = self.indexes.get(attribute) {
            return *index;
        }
        let index = self.list.len();
        self.list.push(attribute.clone());
        self.indexes.insert(attribute.clone(), index);
        index
    }
}

/// The attributes without which a key is not built. A route may come from the transport, so it is never missing here.
fn required_attributes(key: &KeySpec, attributes: &mut AttributeTable) -> Vec<usize> {
    let parts = key.parts.iter().filter(|part| {
        part.missing != OnMissing::Shared && part.attribute.value != Attribute::Route
    });
    let mut required: Vec<usize> = parts
        .map(|part| attributes.index(&part.attribute.value))
        .collect();
    required.sort_unstable();
    required.dedup();
    required
}

fn narrowest_group(draft: &RulesDraft, limit: &DraftLimit) -> Option<usize> {
    let name = limit.group.as_deref()?;
    draft
        .groups
        .iter()
        .position(|group| *group.name.value == *name && group.apply == GroupSelection::Narrowest)
}
