//! From a request to a bounded batch of checks: which meters are asked, under which keys, by which quotas, for how much.
//!
//! A plan is used again for request after request, so that a warm one allocates nothing. Must not know: what is done
//! with the answers.

mod add;
mod beside;
mod keys;

pub(crate) use add::{Added, Asking, Manner};

use tollgate_core::compose::Verdict;
use tollgate_policy::model::Consistency;
use tollgate_policy::rules::Role;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, ErrorKind, Key, Note, Op, Ruled, StoreError};

use self::keys::Keys;
use crate::asks::{Asks, Shared, Sharing};
use crate::deny_cache::Keep;
use crate::generation::{Generation, Metered};
use crate::told::Told;
use crate::waiting::Patient;

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
    /// The key by which a fleet places the state, if not by its own.
    place: Option<usize>,
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
    keys: Keys,
    computed: Vec<(Ruled, Option<Patient>)>,
}

impl Plan {
    /// With room for everything that one request may ask.
    pub(crate) fn new() -> Self {
        Self {
            planned: Vec::with_capacity(MAX_CHECKS),
            answers: Vec::with_capacity(MAX_CHECKS),
            keys: Keys::default(),
            computed: Vec::new(),
        }
    }

    pub(crate) fn clear(&mut self) {
        self.planned.clear();
        self.answers.clear();
        self.keys.clear();
        self.computed.clear();
    }

    pub(crate) fn planned(&self) -> &[Planned] {
        &self.planned
    }

    /// Every check with what the store answered to it.
    pub(crate) fn answered(&self) -> impl Iterator<Item = (&Planned, &Answer)> {
        self.planned.iter().zip(&self.answers)
    }

    /// Asks the store about everything that is planned, in one step.
    pub(crate) async fn ask<S: Asks>(
        &mut self,
        generation: &Generation,
        store: &S,
    ) -> Result<Verdict, StoreError> {
        let mut answers = std::mem::take(&mut self.answers);
        answers.clear();
        answers.resize(self.planned.len(), Answer::EMPTY);
        let asked = if S::WAITS {
            self.ask_and_wait(generation, store, &mut answers).await
        } else {
            match self.planned.len() {
                0..=1 => self.ask_up_to::<1, S>(generation, store, &mut answers),
                2 => self.ask_up_to::<2, S>(generation, store, &mut answers),
                3..=4 => self.ask_up_to::<4, S>(generation, store, &mut answers),
                5..=8 => self.ask_up_to::<8, S>(generation, store, &mut answers),
                _ => self.ask_up_to::<MAX_CHECKS, S>(generation, store, &mut answers),
            }
        };
        for (planned, answer) in self.planned.iter().zip(&mut answers) {
            // Whoever stands in for a quota lets nobody wait.
            let is_by_quota = !matches!(answer.note, Note::StandIn | Note::Waived | Note::Unasked);
            if let Some(patient) = self.patient(generation, planned).filter(|_| is_by_quota) {
                patient.translate(answer, planned.cost);
            }
        }
        self.answers = answers;
        asked
    }

    /// Over a store that answers at once: no room is made for waiting, which would cost a tenth of a decision.
    fn ask_up_to<const N: usize, S: Asks>(
        &self,
        generation: &Generation,
        store: &S,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
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
        let shared = By {
            plan: self,
            generation,
            from: 0,
        };
        store.ask_at_once(asked, &shared, answers)
    }

    async fn ask_and_wait<S: Asks>(
        &self,
        generation: &Generation,
        store: &S,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let check = |planned: &Planned| self.check(generation, planned, planned.op);
        let shared = By {
            plan: self,
            generation,
            from: 0,
        };
        // Most requests fall under one limit; no room is made on the heap for one check.
        let (one, many);
        let checks: &[Check<'_>] = match &*self.planned {
            [planned] => {
                one = [check(planned).ok_or_else(missing)?];
                &one
            }
            all => {
                let checks: Option<Vec<Check<'_>>> = all.iter().map(check).collect();
                many = checks.ok_or_else(missing)?;
                &many
            }
        };
        store.ask(checks, &shared, answers).await
    }

    /// Asks the store something else about one of the checks, by itself.
    pub(crate) async fn ask_alone<S: Asks>(
        &self,
        generation: &Generation,
        store: &S,
        position: usize,
        op: Op,
    ) -> Option<Result<Answer, StoreError>> {
        let planned = self.planned.get(position)?;
        let check = self.check(generation, planned, op)?;
        let mut answers = [Answer::EMPTY];
        let shared = By {
            plan: self,
            generation,
            from: position,
        };
        let asked = store.ask(&[check], &shared, &mut answers).await;
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
        self.keys.bytes(planned.key)
    }

    /// What says where a fleet keeps the state of a check, if not its key.
    pub(crate) fn place_of(&self, planned: &Planned) -> Option<&[u8]> {
        planned.place.map(|place| self.keys.bytes(place))
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

    /// What is told of the quota that a check is decided by.
    pub(crate) fn told<'a>(&'a self, generation: &'a Generation, planned: &Planned) -> Told<'a> {
        let Some(ruled) = self.ruled(generation, planned) else {
            return Told::NOTHING;
        };
        let listed = match planned.quota {
            QuotaAt::Listed(index) | QuotaAt::Patient(index) => index,
            QuotaAt::Computed(_) => usize::MAX,
        };
        let patient = self.patient(generation, planned);
        Told::of(listed, &ruled.limit, patient.map(Patient::capacity))
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

    /// How a fleet shares the state that a check is about.
    pub(crate) fn sharing<'a>(
        &'a self,
        generation: &'a Generation,
        planned: &Planned,
    ) -> Sharing<'a> {
        let Some((rule, entry)) = generation.rule(planned.rule) else {
            return Sharing::EXACT;
        };
        let metered = entry.meters.get(planned.meter);
        let plain = match planned.quota {
            QuotaAt::Patient(index) => {
                let listed = metered.and_then(|metered| metered.listed.get(index));
                listed.map(|ruled| &ruled.limit)
            }
            QuotaAt::Listed(_) | QuotaAt::Computed(_) => None,
        };
        Sharing {
            generation: generation.number(),
            is_local: planned.role == Role::Local,
            // Only the limit itself is shared another way: what hangs on it is exact.
            consistency: match planned.role {
                Role::Main => rule.consistency,
                _ => Consistency::Exact,
            },
            on_failure: rule.on_store_failure,
            keep: metered.map_or(Keep::Never, |metered| metered.keep),
            place: self.place_of(planned).and_then(|place| Key::of(place).ok()),
            plain,
            is_counter: false,
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
}

/// Checks of a plan, the first of which is the one at `from`.
struct By<'a> {
    plan: &'a Plan,
    generation: &'a Generation,
    from: usize,
}

impl Shared for By<'_> {
    fn sharing(&self, position: usize) -> Sharing<'_> {
        let planned = self.plan.planned.get(self.from.saturating_add(position));
        planned.map_or(Sharing::EXACT, |planned| {
            self.plan.sharing(self.generation, planned)
        })
    }
}

fn missing() -> StoreError {
    StoreError::new(ErrorKind::BadRequest, "a check has no quota or no key")
}

fn metered_of<'a>(generation: &'a Generation, planned: &Planned) -> Option<&'a Metered> {
    let (_, entry) = generation.rule(planned.rule)?;
    entry.meters.get(planned.meter)
}
