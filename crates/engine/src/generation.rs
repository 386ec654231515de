//! One version of a policy as the engine asks it: compiled rules, the number of each state, and each limit's counters.
//!
//! A generation never changes. A reload makes another one and swaps the two, so that every decision is made by exactly
//! one. Must not know: requests, answers, files.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, OnceLock};

use tollgate_core::Timestamp;
use tollgate_core::limit::Limit;
use tollgate_policy::model::{Count, KeyPart, Penalty};
use tollgate_policy::rules::{Meter, MeterRef, Recipe, Role, Rule, Rules};
use tollgate_store::{LimitId, Ruled};

use crate::counters::{Counted, Counters};
use crate::deny_cache::Keep;
use crate::desk::DeskSlot;
use crate::kept::Kept;
use crate::lots::Draw;
use crate::numbers::{Assigned, Kind, Numbers, OutOfNumbers, Wanted, lifetime};
use crate::trial::{Comparisons, Divergence, Trial};
use crate::waiting::{Patience, Patient, bound};

/// One version of a policy.
#[derive(Debug)]
pub struct Generation {
    number: u64,
    rules: Rules,
    limits: Box<[Entry]>,
    /// Whether any rule has a candidate.
    has_trials: bool,
    /// What operators have said about it; the one thing that changes.
    desk: DeskSlot,
    /// What a transport has made of it.
    notes: Notes,
}

/// A place for what others make of a generation.
#[derive(Default)]
struct Notes(OnceLock<Box<dyn Any + Send + Sync>>);

impl fmt::Debug for Notes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notes").finish_non_exhaustive()
    }
}

/// What the engine knows of one rule beyond the rule.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) meters: Box<[Metered]>,
    pub(crate) counters: Arc<Counters>,
    /// Whether values are counted and not requests.
    pub(crate) counts_values: bool,
    /// Whether some of its charges wait for the response.
    pub(crate) awaits_response: bool,
    /// Draws which keys it is enforced for.
    pub(crate) draw: Draw,
    /// The comparison with its candidate, if it has one.
    pub(crate) trial: Option<Arc<Trial>>,
}

/// What the engine knows of one meter beyond the meter.
#[derive(Debug)]
pub(crate) struct Metered {
    /// The number of its states.
    pub(crate) id: LimitId,
    /// Which recipe its key is made by: equal recipes have equal numbers.
    pub(crate) key: u32,
    /// Which recipe says where a fleet keeps its states, if not its key.
    pub(crate) place: Option<u32>,
    /// Its quotas with that number, in the order of the meter's.
    pub(crate) listed: Box<[Ruled]>,
    /// The same quotas where they may be waited for.
    pub(crate) patient: Box<[Option<(Ruled, Patient)>]>,
    /// How quotas computed for a request may be waited for.
    pub(crate) patience: Option<Patience>,
    pub(crate) is_concurrency: bool,
    /// Whether another rule has the same states.
    pub(crate) is_shared: bool,
    /// How long a denial may be answered without asking the store.
    pub(crate) keep: Keep,
}

/// A generation that is ready to be put in force, and what a store has to be told first.
pub(crate) struct Prepared {
    pub(crate) generation: Generation,
    pub(crate) numbers: Numbers,
    /// Numbers whose states are gone.
    pub(crate) gone: Vec<LimitId>,
}

impl Generation {
    /// Which version it is: they are counted from 1.
    #[must_use]
    pub const fn number(&self) -> u64 {
        self.number
    }

    /// The compiled rules.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// How long a denial by one meter may be answered without asking the store again: what a
    /// [`DenyCache`](crate::deny_cache::DenyCache) has to be told.
    #[must_use]
    pub fn keeps_denials(&self, meter: MeterRef) -> Option<Keep> {
        let entry = self.limits.get(meter.rule)?;
        entry.meters.get(meter.meter).map(|metered| metered.keep)
    }

    /// What a rule has decided so far, by its index in the policy, whatever its quota was meanwhile.
    #[must_use]
    pub fn counted(&self, rule: usize) -> Option<Counted> {
        let entry = self.limits.get(rule)?;
        Some(entry.counters.read())
    }

    /// How often a rule's candidate was compared and decided differently, by the rule's index in the policy; `None` if it
    /// has no candidate. Unlike [`Engine::divergence`](crate::Engine::divergence) this holds up nobody who counts.
    #[must_use]
    pub fn compared(&self, rule: usize) -> Option<Comparisons> {
        let entry = self.limits.get(rule)?;
        entry.trial.as_ref().map(|trial| trial.comparisons())
    }

    /// What a transport has made of these rules and wants to find again with every verdict, such as names as they are
    /// sent: made by whoever asks first. `None` if something of another type was made before; there is one place.
    pub fn noted<T: Any + Send + Sync>(&self, make: impl FnOnce(&Self) -> T) -> Option<&T> {
        let made = self.notes.0.get_or_init(|| Box::new(make(self)));
        made.downcast_ref()
    }

    /// One rule and what the engine knows of it.
    pub(crate) fn rule(&self, index: usize) -> Option<(&Rule, &Entry)> {
        self.rules.rules().get(index).zip(self.limits.get(index))
    }

    /// The counters of the rule of this name.
    pub(crate) fn counters(&self, name: &str) -> Option<&Counters> {
        let entry = self.limits.get(self.index(name)?);
        entry.map(|entry| &*entry.counters)
    }

    /// Where the rule of this name stands.
    pub(crate) fn index(&self, name: &str) -> Option<usize> {
        let mut rules = self.rules.rules().iter();
        rules.position(|rule| &*rule.name == name)
    }

    /// Whether any rule has a candidate.
    pub(crate) const fn has_trials(&self) -> bool {
        self.has_trials
    }

    /// What operators have said about it.
    pub(crate) const fn desk(&self) -> &DeskSlot {
        &self.desk
    }

    /// How a rule's candidate compares, if it has one.
    pub(crate) fn divergence(&self, index: usize) -> Option<Divergence> {
        let (rule, entry) = self.rule(index)?;
        let of_candidate = |meter: &Meter| meter.role == Role::Candidate;
        let recipe = rule.meters.iter().position(of_candidate).and_then(|meter| {
            let place = MeterRef { rule: index, meter };
            self.rules.recipe(place)
        });
        let threshold = self.rules.divergence_threshold();
        Some(entry.trial.as_ref()?.read(&rule.name, threshold, recipe))
    }

    /// Every quota there is, with the quota of the other generation that has the same number and place, if there is one.
    pub(crate) fn quotas<'a>(
        &'a self,
        before: Option<&'a Self>,
    ) -> impl Iterator<Item = (Option<&'a Ruled>, &'a Ruled)> {
        let old: HashMap<LimitId, &Metered> = before
            .into_iter()
            .flat_map(Self::meters)
            .map(|metered| (metered.id, metered))
            .collect();
        self.meters().flat_map(move |metered| {
            let old = old.get(&metered.id).copied();
            let all = |metered: &'a Metered| {
                let patient = metered.patient.iter().flatten().map(|(ruled, _)| ruled);
                metered.listed.iter().chain(patient)
            };
            all(metered)
                .enumerate()
                .map(move |(index, new)| (old.and_then(|old| all(old).nth(index)), new))
        })
    }

    fn meters(&self) -> impl Iterator<Item = &Metered> {
        self.limits.iter().flat_map(|entry| &entry.meters)
    }

    /// Numbers the states of rules and makes the next generation of them. Nothing is in force yet.
    pub(crate) fn prepare(
        rules: Rules,
        numbers: &Numbers,
        kept: &mut Kept,
        number: u64,
        now: Timestamp,
    ) -> Result<Prepared, OutOfNumbers> {
        let wanted: Vec<Wanted<'_>> = rules
            .rules()
            .iter()
            .flat_map(|rule| rule.meters.iter().map(|meter| wanted(rule, meter)))
            .collect();
        let Assigned { ids, gone, numbers } = numbers.assign(&wanted, now)?;
        let mut uses: HashMap<LimitId, usize> = HashMap::new();
        for id in &ids {
            *uses.entry(*id).or_default() += 1;
        }
        let mut ids = ids.into_iter();
        let mut recipes = Recipes::default();
        let entry = |(index, rule): (usize, &Rule)| {
            let meters = rule.meters.iter().enumerate().zip(&mut ids);
            let metered = meters.map(|((position, meter), id)| {
                let place = MeterRef {
                    rule: index,
                    meter: position,
                };
                let key = recipes.number(rules.recipe(place));
                let lies = rules.placing(place).map(|part| recipes.of_place(part));
                let is_shared = uses.get(&id).is_some_and(|uses| *uses > 1);
                Metered::new(rule, meter, (id, key, lies), is_shared)
            });
            Entry {
                meters: metered.collect(),
                counters: kept.counters(rule),
                counts_values: rule.meters.iter().any(|meter| meter.role == Role::Seen),
                awaits_response: awaits_response(rule),
                draw: Draw::of(rule, &rules),
                trial: kept.trial(rule),
            }
        };
        let limits: Box<[Entry]> = rules.rules().iter().enumerate().map(entry).collect();
        let has_trials = limits.iter().any(|entry| entry.trial.is_some());
        Ok(Prepared {
            generation: Self {
                number,
                rules,
                limits,
                has_trials,
                desk: DeskSlot::default(),
                notes: Notes::default(),
            },
            numbers,
            gone,
        })
    }
}

impl Metered {
    fn new(
        rule: &Rule,
        meter: &Meter,
        (id, key, place): (LimitId, u32, Option<u32>),
        is_shared: bool,
    ) -> Self {
        let ruled = |limit: Limit| Ruled { id, limit };
        let may_wait = matches!(meter.role, Role::Main | Role::Local | Role::Candidate)
            && rule.count == Count::Requests;
        let wait = rule.wait.filter(|_| may_wait);
        let patience = wait.and_then(|wait| Patience::of(&meter.quotas, wait));
        let own = |limit: &Limit| match (patience, wait) {
            (Some(patience), _) => patience.own(limit),
            (None, Some(wait)) => bound(limit, wait),
            (None, None) => *limit,
        };
        let stretch = |limit: &Limit| {
            let patient = patience?.stretch(limit)?;
            Some((ruled(patient.limit), patient))
        };
        let is_concurrency = meter.quotas.first().map(Limit::kind) == Some(Kind::Concurrency);
        Self {
            id,
            key,
            place,
            listed: meter.quotas.iter().map(own).map(ruled).collect(),
            patient: meter.quotas.iter().map(stretch).collect(),
            patience,
            is_concurrency,
            is_shared,
            keep: keep(rule, is_concurrency),
        }
    }
}

/// Numbers for recipes, so that a request's keys are each made once.
#[derive(Default)]
struct Recipes {
    known: HashMap<String, u32>,
}

impl Recipes {
    fn number(&mut self, recipe: Option<&Recipe>) -> u32 {
        let mut words = String::new();
        let parts = recipe.map_or(&[][..], |recipe| &recipe.parts);
        for part in parts {
            words.push_str(&in_words(part));
        }
        words.push_str(&format!("{:?}", recipe.map(|recipe| &recipe.distinct)));
        self.number_of(words)
    }

    /// Where a fleet keeps states is made like a key, and numbered among them.
    fn of_place(&mut self, part: &KeyPart) -> u32 {
        self.number_of(format!("place {}", in_words(part)))
    }

    fn number_of(&mut self, words: String) -> u32 {
        let next = u32::try_from(self.known.len()).unwrap_or(u32::MAX);
        *self.known.entry(words).or_insert(next)
    }
}

fn in_words(part: &KeyPart) -> String {
    let how = (
        part.lower,
        part.hash,
        part.v4_bits,
        part.v6_bits,
        part.missing,
    );
    format!("{:?} {how:?};", part.attribute.value)
}

fn wanted<'a>(rule: &'a Rule, meter: &'a Meter) -> Wanted<'a> {
    let longest = meter.quotas.iter().map(lifetime).max();
    let longest = longest.unwrap_or_default();
    Wanted {
        identity: &meter.identity,
        asked: meter.number,
        kind: meter.quotas.first().map_or(Kind::TokenBucket, Limit::kind),
        lifetime: longest.saturating_add(rule.wait.unwrap_or_default()),
    }
}

/// Whether something about a request of this rule is charged or corrected only when its response is known.
fn awaits_response(rule: &Rule) -> bool {
    rule.price.response_header().is_some() || matches!(rule.count, Count::Responses(_))
}

/// What may be given back must not be denied from memory for long, and what costs something not at all.
fn keep(rule: &Rule, is_concurrency: bool) -> Keep {
    if is_concurrency || rule.penalty != Penalty::None {
        Keep::Never
    } else if awaits_response(rule) || rule.wait.is_some() {
        Keep::Briefly
    } else {
        Keep::WhileTrue
    }
}
