//! From a request to a bounded batch of checks: which meters are asked, under which keys, by which quotas, for how much.
//!
//! A plan is used again for request after request, so that a warm one allocates nothing. Must not know: what is done
//! with the answers.

use tollgate_core::compose::Verdict;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::Count;
use tollgate_policy::rules::{Chosen, Found, KeyBuffer, Keyed, Meter, MeterRef, Role, Rule};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, ErrorKind, Key, Op, Ruled, Store, StoreError};

use crate::generation::{Entry, Generation, Metered};
use crate::lots::Lots;
use crate::waiting::Patient;

/// A request and what it is asked by.
pub(crate) struct Asking<'a> {
    pub(crate) generation: &'a Generation,
    pub(crate) request: &'a dyn Attributes,
    pub(crate) found: &'a Found,
    pub(crate) route: Option<&'a [u8]>,
    /// What the caller says it costs, whatever the rules say.
    pub(crate) cost: Option<u64>,
    pub(crate) manner: Manner,
    pub(crate) lots: &'a Lots,
}

/// Whether a request is charged or only looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Manner {
    Charge,
    Look,
}

/// What became of a rule's part in a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// Its meters are asked, as far as they apply.
    Asked,
    /// Its key cannot be made, and it refuses without one.
    NoKey,
    /// There is no room for all of its meters.
    TooMany,
}

/// One meter that is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Planned {
    pub(crate) rule: usize,
    pub(crate) meter: usize,
    pub(crate) role: Role,
    pub(crate) op: Op,
    /// What the request costs here.
    pub(crate) cost: u64,
    quota: QuotaAt,
    key: usize,
}

/// Where a check's quota stands.
#[derive(Clone, Copy, Debug)]
enum QuotaAt {
    Listed(usize),
    Patient(usize),
    /// In the plan itself.
    Computed(usize),
}

/// What a store is asked about one request.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    planned: Vec<Planned>,
    answers: Vec<Answer>,
    keys: Vec<KeyBuffer>,
    keys_used: usize,
    computed: Vec<(Ruled, Option<Patient>)>,
}

impl Plan {
    /// With room for everything that one request may ask.
    pub(crate) fn new() -> Self {
        Self {
            planned: Vec::with_capacity(MAX_CHECKS),
            answers: Vec::with_capacity(MAX_CHECKS),
            keys: Vec::new(),
            keys_used: 0,
            computed: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.planned.clear();
        self.answers.clear();
        self.keys_used = 0;
        self.computed.clear();
    }

    pub(crate) fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Every check with what the store answered to it.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&Planned, &Answer)> {
        self.planned.iter().zip(&self.answers)
    }

    /// Plans what one rule asks. On anything but `Asked` the plan is as it was.
    pub(crate) fn add(&mut self, asking: &Asking<'_>, index: usize) -> Added {
        let Some((rule, entry)) = asking.generation.rule(index) else {
            return Added::Asked;
        };
        let before = self.planned.len();
        let cost = asking
            .cost
            .unwrap_or_else(|| rule.price.of_request(asking.request, asking.route));
        let mut of = OfRule {
            asking,
            index,
            rule,
            entry,
            cost,
            variant: None,
            key: None,
        };
        for (position, (meter, metered)) in rule.meters.iter().zip(&entry.meters).enumerate() {
            if meter.role == Role::Candidate {
                continue;
            }
            let added = self.add_meter(&mut of, position, meter, metered);
            if added != Added::Asked {
                self.planned.truncate(before);
                return added;
            }
        }
        Added::Asked
    }

    fn add_meter(
        &mut self,
        of: &mut OfRule<'_>,
        position: usize,
        meter: &Meter,
        metered: &Metered,
    ) -> Added {
        let key = match self.key(of, position, meter) {
            (Keyed::Here, key) => key,
            (Keyed::Skip, _) => return Added::Asked,
            (Keyed::Deny, _) => return Added::NoKey,
        };
        let asking = of.asking;
        let variant = match of.variant {
            Some(variant) => variant,
            None => {
                let bytes = self.key_bytes(key);
                let variant = of.rule.choice.variant(asking.request, asking.route, bytes);
                *of.variant.insert(variant)
            }
        };
        let cost = match meter.role {
            Role::Block | Role::Seen => 1,
            _ if of.entry.counts_values => 1,
            _ => of.cost,
        };
        let chosen = meter.chosen(variant, asking.request, asking.route);
        let Some(quota) = self.quota(metered, chosen, cost) else {
            return Added::Asked;
        };
        let op = of.op(meter, metered, cost);
        if metered.is_shared && self.is_joined(asking.generation, metered, key, op) {
            return Added::Asked;
        }
        if self.planned.len() >= MAX_CHECKS {
            return Added::TooMany;
        }
        self.planned.push(Planned {
            rule: of.index,
            meter: position,
            role: meter.role,
            op,
            cost,
            quota,
            key,
        });
        Added::Asked
    }

    /// The key of a meter. Meters of a rule that have the same one share it.
    fn key(&mut self, of: &mut OfRule<'_>, position: usize, meter: &Meter) -> (Keyed, usize) {
        let is_common = of.entry.has_one_key && meter.role != Role::Seen;
        if let Some(known) = of.key.filter(|_| is_common) {
            return known;
        }
        if self.keys_used >= self.keys.len() {
            self.keys.push(KeyBuffer::new());
        }
        let place = MeterRef {
            rule: of.index,
            meter: position,
        };
        let slot = self.keys_used;
        let keyed = match self.keys.get_mut(slot) {
            Some(buffer) => {
                let Asking {
                    generation,
                    request,
                    found,
                    ..
                } = of.asking;
                generation.rules().key(place, *request, found, buffer)
            }
            None => Keyed::Deny,
        };
        self.keys_used += 1;
        if is_common {
            of.key = Some((keyed, slot));
        }
        (keyed, slot)
    }

    /// `None`: this key is not limited here.
    fn quota(&mut self, metered: &Metered, chosen: Chosen, cost: u64) -> Option<QuotaAt> {
        match chosen {
            Chosen::Unlimited => None,
            Chosen::Listed(index) => {
                let patient = metered.patient.get(index).and_then(Option::as_ref);
                let may_wait = patient.is_some_and(|(_, patient)| cost <= patient.most);
                Some(if may_wait {
                    QuotaAt::Patient(index)
                } else {
                    QuotaAt::Listed(index)
                })
            }
            Chosen::Computed(limit) => {
                let id = metered.id;
                let patience = metered.patience.as_ref();
                let patient = patience
                    .and_then(|patience| patience.stretch(&limit))
                    .filter(|patient| cost <= patient.most);
                let limit = match (&patient, patience) {
                    (Some(patient), _) => patient.limit,
                    (None, Some(patience)) => patience.own(&limit),
                    (None, None) => limit,
                };
                self.computed.push((Ruled { id, limit }, patient));
                Some(QuotaAt::Computed(self.computed.len() - 1))
            }
        }
    }

    /// Whether the same state is asked about already, by a rule that shares it. It is charged once, at the higher cost.
    fn is_joined(
        &mut self,
        generation: &Generation,
        metered: &Metered,
        key: usize,
        op: Op,
    ) -> bool {
        let bytes = self.keys.get(key).map(KeyBuffer::as_bytes);
        let is_same = |other: &Planned| {
            let id = metered_of(generation, other).map(|metered| metered.id);
            id == Some(metered.id) && self.keys.get(other.key).map(KeyBuffer::as_bytes) == bytes
        };
        let Some(position) = self.planned.iter().position(is_same) else {
            return false;
        };
        if let (Some(other), Op::Spend(cost)) = (self.planned.get_mut(position), op)
            && let Op::Spend(planned) = other.op
        {
            other.op = Op::Spend(planned.max(cost));
            other.cost = planned.max(cost);
        }
        true
    }

    /// Asks the store about everything that is planned, in one step.
    pub(crate) fn ask<S: Store>(
        &mut self,
        generation: &Generation,
        store: &S,
    ) -> Result<Verdict, StoreError> {
        let mut answers = std::mem::take(&mut self.answers);
        answers.clear();
        answers.resize(self.planned.len(), Answer::EMPTY);
        let asked = match self.planned.len() {
            0..=1 => self.ask_up_to::<1, S>(generation, store, &mut answers),
            2 => self.ask_up_to::<2, S>(generation, store, &mut answers),
            3..=4 => self.ask_up_to::<4, S>(generation, store, &mut answers),
            5..=8 => self.ask_up_to::<8, S>(generation, store, &mut answers),
            _ => self.ask_up_to::<MAX_CHECKS, S>(generation, store, &mut answers),
        };
        for (planned, answer) in self.planned.iter().zip(&mut answers) {
            if let Some(patient) = self.patient(generation, planned) {
                patient.translate(answer, planned.cost);
            }
        }
        self.answers = answers;
        asked
    }

    fn ask_up_to<const N: usize, S: Store>(
        &self,
        generation: &Generation,
        store: &S,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let missing = || StoreError::new(ErrorKind::BadRequest, "a check has no quota or no key");
        let Some(first) = self.planned.first() else {
            return Ok(Verdict::default());
        };
        let first = self
            .check(generation, first, first.op)
            .ok_or_else(missing)?;
        let mut checks: [Check<'_>; N] = [first; N];
        for (place, planned) in checks.iter_mut().zip(&self.planned).skip(1) {
            *place = self
                .check(generation, planned, planned.op)
                .ok_or_else(missing)?;
        }
        let asked = checks.get(..self.planned.len()).unwrap_or_default();
        store.decide(asked, answers)
    }

    /// Asks the store something else about one of the checks, by itself.
    pub(crate) fn ask_alone<S: Store>(
        &self,
        generation: &Generation,
        store: &S,
        position: usize,
        op: Op,
    ) -> Option<Result<Answer, StoreError>> {
        let planned = self.planned.get(position)?;
        let check = self.check(generation, planned, op)?;
        let mut answers = [Answer::EMPTY];
        let asked = store.decide(&[check], &mut answers);
        let [mut answer] = answers;
        if let Some(patient) = self.patient(generation, planned) {
            patient.translate(&mut answer, planned.cost);
        }
        Some(asked.map(|_| answer))
    }

    /// Somebody else was first to show a value that is counted: the rule is asked again without counting it. Answers
    /// whether there was such a rule.
    pub(crate) fn forgo_seen(&mut self) -> bool {
        let is_seen = |(planned, answer): &(&Planned, &Answer)| {
            planned.role == Role::Seen && !answer.outcome.is_admitted()
        };
        let Some(rule) = self
            .answered()
            .find(is_seen)
            .map(|(planned, _)| planned.rule)
        else {
            return false;
        };
        self.planned
            .retain(|one| one.rule != rule || one.role != Role::Seen);
        let counting = self.planned.iter_mut().filter(|one| one.rule == rule);
        for one in counting.filter(|one| matches!(one.role, Role::Main | Role::Local)) {
            one.op = match one.op {
                Op::Peek(_) => Op::Peek(0),
                _ => Op::Spend(0),
            };
            one.cost = 0;
        }
        true
    }

    /// The key of a check, as it is encoded.
    pub(crate) fn key_of(&self, planned: &Planned) -> &[u8] {
        self.key_bytes(planned.key)
    }

    /// The quota that a check is decided by.
    pub(crate) fn ruled<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &Planned,
    ) -> Option<&'a Ruled> {
        let metered = metered_of(generation, planned)?;
        match planned.quota {
            QuotaAt::Listed(index) => metered.listed.get(index),
            QuotaAt::Patient(index) => {
                let patient = metered.patient.get(index)?.as_ref();
                patient.map(|(ruled, _)| ruled)
            }
            QuotaAt::Computed(index) => self.computed.get(index).map(|(ruled, _)| ruled),
        }
    }

    fn patient<'a>(&'a self, generation: &'a Generation, planned: &Planned) -> Option<&'a Patient> {
        match planned.quota {
            QuotaAt::Listed(_) => None,
            QuotaAt::Patient(index) => {
                let patient = metered_of(generation, planned)?
                    .patient
                    .get(index)?
                    .as_ref();
                patient.map(|(_, patient)| patient)
            }
            QuotaAt::Computed(index) => self.computed.get(index)?.1.as_ref(),
        }
    }

    fn check<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &Planned,
        op: Op,
    ) -> Option<Check<'a>> {
        Some(Check {
            key: Key::of(self.key_of(planned)).ok()?,
            ruled: self.ruled(generation, planned)?,
            op,
        })
    }

    fn key_bytes(&self, key: usize) -> &[u8] {
        self.keys.get(key).map_or(&[], KeyBuffer::as_bytes)
    }
}

/// A rule while it is planned.
struct OfRule<'a> {
    asking: &'a Asking<'a>,
    index: usize,
    rule: &'a Rule,
    entry: &'a Entry,
    cost: u64,
    variant: Option<usize>,
    /// The key that most of its meters share.
    key: Option<(Keyed, usize)>,
}

impl OfRule<'_> {
    /// What a meter is asked.
    fn op(&self, meter: &Meter, metered: &Metered, cost: u64) -> Op {
        let looks = self.asking.manner == Manner::Look;
        match meter.role {
            // Nobody can look at how long places are taken; holding none says how many there are.
            _ if metered.is_concurrency => Op::Acquire {
                id: self.asking.lots.draw(),
                weight: if looks { 0 } else { cost },
            },
            Role::Block => Op::Peek(1),
            Role::Main if self.rule.charge_always => {
                if looks {
                    Op::Peek(0)
                } else {
                    Op::ChargeAlways(cost)
                }
            }
            _ if looks => Op::Peek(cost),
            Role::Main | Role::Local if self.rule.count != Count::Requests => Op::Peek(cost),
            _ => Op::Spend(cost),
        }
    }
}

fn metered_of<'a>(generation: &'a Generation, planned: &Planned) -> Option<&'a Metered> {
    let (_, entry) = generation.rule(planned.rule)?;
    entry.meters.get(planned.meter)
}
