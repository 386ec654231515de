//! The most quotas that one request can reach, so that a policy is refused when it is loaded, not a request when it is
//! decided.
//!
//! All quotas of enforced limits that apply to a request are one batch of a bounded size. Which limits can apply
//! together follows from their conditions: a request has one method, one path and one value of each header. The search
//! divides the requests by the values of one attribute after the other, until so few limits remain that they fit. It
//! never misses a request; it may find one that cannot be sent, for example if two patterns exclude each other only in
//! the middle. Must not know: how requests are matched, how quotas are decided.

mod conditions;
mod partition;
mod segments;
mod values;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::conditions::{LimitConditions, Requirement};
use self::partition::{Partition, ValueClass};
use self::segments::PathChoice;
use super::draft::{DraftLimit, KeySpec, RuleError, RuleErrorKind, RuleOrigin, RulesDraft};
use super::{MAX_METERS, Meter, MeterRole};
use crate::attributes::Attribute;
use crate::model::{GroupSelection, Mode, OnMissing};

/// The most steps of a search. A policy of 10,000 limits takes fewer than a million.
const MAX_STEPS: usize = 20_000_000;
/// The most divisions of one request.
const MAX_DEPTH: usize = 200;

/// More quotas than the maximum, which one request can reach.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct TooManyQuotas {
    /// The limits, by index.
    pub(super) limits: Vec<usize>,
    /// The number of their quotas.
    pub(super) quotas: usize,
    /// The attributes of such a request, as far as they matter.
    pub(super) request: String,
}

impl TooManyQuotas {
    /// The error at the limit that is one too many.
    pub(super) fn into_error(self, draft: &RulesDraft) -> RuleError {
        let mut quotas = 0;
        let beyond = self.limits.iter().find(|index| {
            let limit = draft.limits.get(**index);
            quotas += limit.map_or(0, |limit| meters(limit).count());
            quotas > MAX_METERS
        });
        let last = beyond.or(self.limits.last()).copied().unwrap_or(0);
        let limits = self.limits.iter().filter_map(|at| draft.limits.get(*at));
        RuleError {
            origin: RuleOrigin::Limit(last),
            kind: RuleErrorKind::TooManyQuotas {
                quotas: self.quotas,
                limits: limits.map(|limit| limit.rule.name.clone()).collect(),
                request: self.request.into(),
            },
        }
    }
}

/// Checks that no request can reach more than `max` quotas.
pub(super) fn check(draft: &RulesDraft, max: usize) -> Result<(), TooManyQuotas> {
    let total: usize = draft.limits.iter().map(|limit| meters(limit).count()).sum();
    if total <= max {
        return Ok(());
    }
    let mut search = Search::new(draft, max);
    let all = (0..search.items.len()).collect();
    search.explore(all, Choices::default(), 0)
}

/// The meters of a limit that take room in the batch of all enforced limits.
///
/// All of them count, also those of different tiers: an operator may give one key a quota in each.
fn meters(limit: &DraftLimit) -> impl Iterator<Item = (&Meter, &KeySpec)> {
    let is_enforced = limit.rule.mode == Mode::Enforce;
    let meters = limit.rule.meters.iter().zip(&limit.keys);
    meters.filter(move |(meter, _)| is_enforced && meter.role != MeterRole::Candidate)
}

/// Quotas that apply to the same requests: the meters of one limit with one key.
#[derive(Debug)]
struct Item {
    limit: usize,
    quotas: usize,
    /// The identity of a meter that several limits share. It takes room once.
    shared: Option<usize>,
    /// The attributes that its key cannot do without.
    required: Vec<usize>,
}

/// What has been decided about the requests of one branch.
#[derive(Clone, Debug, Default)]
struct Choices {
    /// The attributes whose value is chosen.
    decided: HashSet<usize>,
    path: PathChoice,
    /// The chosen values, for messages.
    names: Vec<String>,
}

/// An item of the current branch and what it requires of one attribute.
type ItemRequirement<'a> = (usize, &'a Requirement);

#[derive(Debug)]
struct Search {
    items: Vec<Item>,
    /// By limit.
    conditions: Vec<LimitConditions>,
    /// The group of each limit, if only its narrowest limit applies.
    groups: Vec<Option<usize>>,
    attributes: Vec<Attribute>,
    max: usize,
    steps_left: usize,
}

impl Search {
    fn new(draft: &RulesDraft, max: usize) -> Self {
        let mut attributes = AttributeTable::default();
        let mut shared_meters: HashMap<(&str, usize), usize> = HashMap::new();
        let mut key_specs: Vec<&KeySpec> = Vec::new();
        let (mut items, mut conditions, mut groups) = (Vec::new(), Vec::new(), Vec::new());
        for (index, limit) in draft.limits.iter().enumerate() {
            let group = narrowest_group(draft, limit);
            let of_limit = LimitConditions::new(&limit.matching, |one| attributes.index(one));
            let mut by_key: Vec<(&KeySpec, Item)> = Vec::new();
            for (meter, key) in meters(limit) {
                let shared = (limit.rule.bucket.is_some() && group.is_none()).then(|| {
                    let known = key_specs.iter().position(|known| *known == key);
                    let spec = known.unwrap_or(key_specs.len());
                    if known.is_none() {
                        key_specs.push(key);
                    }
                    let next = shared_meters.len();
                    *shared_meters.entry((&meter.identity, spec)).or_insert(next)
                });
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
            items.extend(possible.filter(|item| !of_limit.excludes(&item.required)));
            conditions.push(of_limit);
            groups.push(group);
        }
        Self {
            items,
            conditions,
            groups,
            attributes: attributes.list,
            max,
            steps_left: MAX_STEPS,
        }
    }

    /// Checks all requests of a branch. `subset` has the items that may still apply, in order.
    fn explore(
        &mut self,
        subset: Vec<usize>,
        mut choices: Choices,
        depth: usize,
    ) -> Result<(), TooManyQuotas> {
        loop {
            if self.quotas(&subset) <= self.max {
                return Ok(());
            }
            if self.steps_left == 0 || depth > MAX_DEPTH {
                return Err(self.too_many(&subset, &choices));
            }
            let partitions = self.partitions(&subset, &choices);
            let mut dividing = Vec::new();
            let mut has_advanced = false;
            for (attribute, partition) in partitions {
                match partition.keeps_all {
                    // This value excludes nothing, so no other value has to be looked at.
                    Some(class) => {
                        has_advanced |= self.attributes.get(attribute) == Some(&Attribute::Route);
                        self.choose(&mut choices, attribute, partition.classes.get(class));
                    }
                    None => dividing.push((attribute, partition)),
                }
            }
            if has_advanced {
                continue;
            }
            if self.bound_of_independent(&subset, &dividing) <= self.max {
                return Ok(());
            }
            let total = self.plain_sum(&subset);
            let best = dividing
                .into_iter()
                .map(|(attribute, partition)| {
                    (self.remaining(total, &partition), attribute, partition)
                })
                .min_by_key(|(remaining, attribute, _)| (*remaining, *attribute));
            match best {
                Some((_, attribute, partition)) => {
                    return self.branch(&subset, &choices, (attribute, &partition), depth);
                }
                None => return Err(self.too_many(&subset, &choices)),
            }
        }
    }

    /// Checks each class of a partition by itself.
    fn branch(
        &mut self,
        subset: &[usize],
        choices: &Choices,
        (attribute, partition): (usize, &Partition),
        depth: usize,
    ) -> Result<(), TooManyQuotas> {
        let within = self.plain_sum(subset) - self.plain_sum(&partition.outside);
        let outside: HashSet<usize> = partition.outside.iter().copied().collect();
        for class in &partition.classes {
            if self.class_sum(within, class) <= self.max {
                continue;
            }
            self.spend(subset.len());
            let added: HashSet<usize> = class.added.iter().copied().collect();
            let removed: HashSet<usize> = class.removed.iter().copied().collect();
            let is_in = |item: &&usize| {
                (!outside.contains(*item) || added.contains(*item)) && !removed.contains(*item)
            };
            let rest: Vec<usize> = subset.iter().filter(is_in).copied().collect();
            let mut chosen = choices.clone();
            self.choose(&mut chosen, attribute, Some(class));
            self.explore(rest, chosen, depth + 1)?;
        }
        Ok(())
    }

    fn choose(&self, choices: &mut Choices, attribute: usize, class: Option<&ValueClass>) {
        let Some(class) = class else { return };
        if self.attributes.get(attribute) == Some(&Attribute::Route) {
            choices.path.push(class);
        } else {
            choices.decided.insert(attribute);
            choices.names.extend(class.name.clone());
        }
    }

    /// The partitions by every attribute that is open and that an item of the subset has a condition on.
    fn partitions(&mut self, subset: &[usize], choices: &Choices) -> Vec<(usize, Partition)> {
        let mut by_attribute: BTreeMap<usize, Vec<ItemRequirement<'_>>> = BTreeMap::new();
        let mut steps = subset.len();
        for index in subset {
            let Some(item) = self.items.get(*index) else {
                continue;
            };
            let conditions = self.conditions.get(item.limit);
            let conditions = conditions.map_or(&[][..], |of_limit| &of_limit.list);
            for (attribute, requirement) in conditions {
                by_attribute
                    .entry(*attribute)
                    .or_default()
                    .push((*index, requirement));
            }
            let has_condition =
                |required: &&usize| !conditions.iter().any(|(one, _)| one == *required);
            for attribute in item.required.iter().filter(has_condition) {
                by_attribute
                    .entry(*attribute)
                    .or_default()
                    .push((*index, &Requirement::Present));
            }
            steps += conditions.len() + item.required.len();
        }
        let mut partitions = Vec::new();
        for (attribute, requirements) in by_attribute {
            let partition = match self.attributes.get(attribute) {
                Some(Attribute::Route) if choices.path.is_complete() => continue,
                Some(Attribute::Route) => segments::partition(&requirements, &choices.path),
                Some(_) if choices.decided.contains(&attribute) => continue,
                Some(name) => values::partition(name, &requirements, &mut steps),
                None => continue,
            };
            let lists = partition.classes.iter();
            let listed = lists.map(|class| class.added.len() + class.removed.len() + 1);
            steps += listed.sum::<usize>();
            partitions.push((attribute, partition));
        }
        self.spend(steps);
        partitions
    }

    /// The quotas of a subset if all of it applies: of a group only its largest limit, a shared meter once.
    fn quotas(&self, subset: &[usize]) -> usize {
        let mut total = 0;
        let mut shared = HashSet::new();
        let mut largest: HashMap<usize, usize> = HashMap::new();
        let items: Vec<&Item> = subset.iter().filter_map(|at| self.items.get(*at)).collect();
        for of_limit in items.chunk_by(|one, other| one.limit == other.limit) {
            let limit = of_limit.first().map_or(0, |item| item.limit);
            let quotas: usize = of_limit
                .iter()
                .filter(|item| item.shared.is_none_or(|meter| shared.insert(meter)))
                .map(|item| item.quotas)
                .sum();
            match self.groups.get(limit).copied().flatten() {
                Some(group) => {
                    let largest = largest.entry(group).or_default();
                    *largest = quotas.max(*largest);
                }
                None => total += quotas,
            }
        }
        total + largest.values().sum::<usize>()
    }

    /// A bound that needs no branches: every item counts under one of its attributes, and of each attribute only the
    /// largest class counts.
    fn bound_of_independent(&self, subset: &[usize], partitions: &[(usize, Partition)]) -> usize {
        // The attribute under which an item has the fewest others beside it.
        let mut best: HashMap<usize, (usize, usize)> = HashMap::new();
        for (attribute, partition) in partitions {
            let mut crowd: HashMap<usize, usize> = HashMap::new();
            for class in &partition.classes {
                let sum = self.plain_sum(&class.added);
                for item in &class.added {
                    let largest = crowd.entry(*item).or_default();
                    *largest = sum.max(*largest);
                }
            }
            for item in &partition.outside {
                let here = (crowd.get(item).copied().unwrap_or(0), *attribute);
                let before = best.entry(*item).or_insert(here);
                *before = here.min(*before);
            }
        }
        let free = subset.iter().filter(|item| !best.contains_key(item));
        let mut bound: usize = free.map(|item| self.quotas_of(*item)).sum();
        for (attribute, partition) in partitions {
            let counted = |item: &&usize| best.get(*item).is_some_and(|(_, at)| at == attribute);
            let classes = partition.classes.iter().map(|class| {
                let added = class.added.iter().filter(counted);
                added.map(|item| self.quotas_of(*item)).sum::<usize>()
            });
            bound += classes.max().unwrap_or(0);
        }
        bound
    }

    /// The quotas of all classes that do not fit: the work that remains after this partition.
    fn remaining(&self, total: usize, partition: &Partition) -> usize {
        let within = total - self.plain_sum(&partition.outside);
        let classes = partition.classes.iter();
        let sums = classes.map(|class| self.class_sum(within, class));
        sums.filter(|sum| *sum > self.max).sum()
    }

    /// The quotas of a class, without regard to groups and shared meters. `within`: those that are not outside.
    fn class_sum(&self, within: usize, class: &ValueClass) -> usize {
        within + self.plain_sum(&class.added) - self.plain_sum(&class.removed)
    }

    fn plain_sum(&self, items: &[usize]) -> usize {
        items.iter().map(|item| self.quotas_of(*item)).sum()
    }

    fn quotas_of(&self, item: usize) -> usize {
        self.items.get(item).map_or(0, |item| item.quotas)
    }

    const fn spend(&mut self, steps: usize) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    fn too_many(&self, subset: &[usize], choices: &Choices) -> TooManyQuotas {
        let mut limits: Vec<usize> = subset
            .iter()
            .filter_map(|item| self.items.get(*item))
            .map(|item| item.limit)
            .collect();
        limits.dedup();
        let path = choices.path.name();
        let names: Vec<&str> = choices
            .names
            .iter()
            .chain(&path)
            .map(|name| &**name)
            .collect();
        TooManyQuotas {
            limits,
            quotas: self.quotas(subset),
            request: names.join(", "),
        }
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
