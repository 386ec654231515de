//! The most quotas that one request can reach, so that a policy is refused when it is loaded, not a request when it is
//! decided.
//!
//! All quotas of enforced limits that apply to a request are one batch of a bounded size. Which limits can apply
//! together follows from their conditions: a request has one method, one path and one value of each header. The search
//! divides the requests by the values of one attribute after the other, until so few limits remain that they fit. It
//! never misses a request; it may find one that cannot be sent, for example if two patterns exclude each other only in
//! the middle. Must not know: how requests are matched, how quotas are decided.

mod conditions;
mod items;
mod partition;
mod segments;
mod values;

use std::collections::{BTreeMap, HashMap, HashSet};

use self::conditions::Requirement;
use self::items::{Item, Items, meters};
use self::partition::{Partition, ValueClass};
use self::segments::PathChoice;
use super::MAX_METERS;
use super::draft::{RuleError, RuleErrorKind, RuleOrigin, RulesDraft};
use crate::attributes::Attribute;

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
    let items = Items::new(draft);
    let all: Vec<usize> = (0..items.list.len()).collect();
    let mut search = Search {
        items,
        max,
        steps_left: MAX_STEPS,
    };
    search.explore(&all, Choices::default(), 0)
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
    items: Items,
    max: usize,
    steps_left: usize,
}

impl Search {
    /// Checks all requests of a branch. `subset` has the items that may still apply, in order.
    fn explore(
        &mut self,
        subset: &[usize],
        mut choices: Choices,
        depth: usize,
    ) -> Result<(), TooManyQuotas> {
        loop {
            if self.quotas(subset) <= self.max {
                return Ok(());
            }
            if self.steps_left == 0 || depth > MAX_DEPTH {
                return Err(self.too_many(subset, &choices));
            }
            let partitions = self.partitions(subset, &choices);
            let mut dividing = Vec::new();
            let mut has_advanced = false;
            for (attribute, partition) in partitions {
                match partition.keeps_all {
                    // This value excludes nothing, so no other value has to be looked at.
                    Some(class) => {
                        has_advanced |=
                            self.items.attributes.get(attribute) == Some(&Attribute::Route);
                        self.choose(&mut choices, attribute, partition.classes.get(class));
                    }
                    None => dividing.push((attribute, partition)),
                }
            }
            if has_advanced {
                continue;
            }
            if self.bound_of_independent(subset, &dividing) <= self.max {
                return Ok(());
            }
            let total = self.plain_sum(subset);
            let best = dividing
                .into_iter()
                .map(|(attribute, partition)| {
                    (self.remaining(total, &partition), attribute, partition)
                })
                .min_by_key(|(remaining, attribute, _)| (*remaining, *attribute));
            match best {
                Some((_, attribute, partition)) => {
                    return self.branch(subset, &choices, (attribute, &partition), depth);
                }
                None => return Err(self.too_many(subset, &choices)),
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
            self.explore(&rest, chosen, depth + 1)?;
        }
        Ok(())
    }

    fn choose(&self, choices: &mut Choices, attribute: usize, class: Option<&ValueClass>) {
        let Some(class) = class else { return };
        if self.items.attributes.get(attribute) == Some(&Attribute::Route) {
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
            let Some(item) = self.items.list.get(*index) else {
                continue;
            };
            let conditions = self.items.conditions.get(item.limit);
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
            let partition = match self.items.attributes.get(attribute) {
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
        let items: Vec<&Item> = subset
            .iter()
            .filter_map(|at| self.items.list.get(*at))
            .collect();
        for of_limit in items.chunk_by(|one, other| one.limit == other.limit) {
            let limit = of_limit.first().map_or(0, |item| item.limit);
            let quotas: usize = of_limit
                .iter()
                .filter(|item| item.shared.is_none_or(|meter| shared.insert(meter)))
                .map(|item| item.quotas)
                .sum();
            match self.items.groups.get(limit).copied().flatten() {
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
        self.items.list.get(item).map_or(0, |item| item.quotas)
    }

    const fn spend(&mut self, steps: usize) {
        self.steps_left = self.steps_left.saturating_sub(steps);
    }

    fn too_many(&self, subset: &[usize], choices: &Choices) -> TooManyQuotas {
        let mut limits: Vec<usize> = subset
            .iter()
            .filter_map(|item| self.items.list.get(*item))
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
