//! One batch, over both tiers: which checks are this node's own, which the store is asked about, which it cannot be.
//!
//! What this node decides by itself comes first, because it can be taken back exactly and at once if the store then
//! refuses. Whatever is not answered is decided here, by what stands in for it or as its limit says. Must not know: what
//! a batch is about, how stand-ins are made.

use tollgate_core::compose::Verdict;
use tollgate_core::concurrency::LeaseId;
use tollgate_core::{Outcome, Timestamp};
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{Answer, Check, Note, Op, StoreError};

use super::Fleet;
use super::asked::{Asked, Few, Way};
use super::flights::Turn;
use super::local::{By, Here};
use crate::asks::{Asks, Shared, Sharing};
use crate::deny_cache::Who;
use crate::store::StateStore;

/// A node's own tier and the one it shares.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Consulting<'a, S> {
    pub(super) fleet: &'a Fleet,
    pub(super) local: &'a S,
    /// Whether the store is not asked, whatever becomes of it meanwhile.
    pub(super) is_alone: bool,
}

impl<S: StateStore> Asks for Consulting<'_, S> {
    const WAITS: bool = true;
    const SHARES: bool = true;

    fn now(&self) -> Timestamp {
        self.local.now()
    }

    async fn ask(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        match checks.len() {
            0..=1 => self.ask_up_to::<1>(checks, shared, answers).await,
            // In a box, so that the most frequent do not carry their room around.
            2..=4 => Box::pin(self.ask_up_to::<4>(checks, shared, answers)).await,
            _ => Box::pin(self.ask_up_to::<MAX_CHECKS>(checks, shared, answers)).await,
        }
    }
}

impl<S: StateStore> Consulting<'_, S> {
    /// Decides on a batch of at most so many checks.
    pub(super) async fn ask_up_to<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let mut ways: Few<Way, N> = self.ways(checks, shared);
        if let [check] = checks
            && let Op::Release(id) | Op::Renew(id) = check.op
            && self.is_held_here(check, id, answers)
        {
            return Ok(Verdict::default());
        }
        let mut leading = None;
        let mut whose: Few<Who, N> = Few::new();
        // What there is no room to count here becomes the store's.
        let may_ask = |way: &Way| matches!(way, Way::Shared { .. } | Way::Counted { .. });
        if ways.iter().any(may_ask) {
            let denials = &self.fleet.denials;
            let generation = shared.sharing(0).generation;
            let who = |check: &Check<'_>| denials.who(&check.key, check.ruled.id, generation);
            whose.extend(checks.iter().take(N).map(who));
            // Of most nothing is remembered.
            if denials.knows_any(&whose) {
                if let Some(verdict) = self.remembered::<N>(checks, shared, answers) {
                    return Ok(verdict);
                }
                match self.turn(checks, shared).await {
                    Turn::Alone => {}
                    Turn::First(first) => leading = Some(first),
                    Turn::Answered => {
                        if let Some(verdict) = self.remembered::<N>(checks, shared, answers) {
                            return Ok(verdict);
                        }
                    }
                    // The store did not answer whoever asked; it is not asked once more for each who waited.
                    Turn::Failed => ways.iter_mut().for_each(Way::go_without),
                }
            }
        }
        answers.fill(UNASKED);
        // Everything that was carried out on this node, to be taken back if anybody refuses.
        let mut here: Few<Here, N> = Few::new();
        let decided = self
            .decide(checks, shared, (&mut ways, &whose), (answers, &mut here))
            .await;
        if let Some(leading) = leading {
            leading.landed(!matches!(decided, Ok(Told::WithoutStore(_))));
        }
        let is_admitted = match &decided {
            Ok(Told::ByAll(is_admitted) | Told::WithoutStore(is_admitted)) => *is_admitted,
            Err(_) => false,
        };
        if is_admitted {
            self.note_spent(checks, shared, answers, &here);
        } else {
            self.take_back(checks, answers, &here);
        }
        decided.map(|_| verdict_of(answers))
    }
}

/// Whether a batch is admitted, and whether the store was asked about it and did not answer.
#[derive(Clone, Copy, Debug)]
enum Told {
    ByAll(bool),
    WithoutStore(bool),
}

impl<'a, S: StateStore> Consulting<'a, S> {
    pub(crate) const fn new(fleet: &'a Fleet, local: &'a S) -> Self {
        Self {
            fleet,
            local,
            is_alone: false,
        }
    }

    /// Whether every part of the store is away, so that nobody has to be waited for.
    pub(crate) fn is_without_store(&self) -> bool {
        let mut breakers = self.fleet.breakers.iter();
        breakers.all(|breaker| !breaker.is_closed())
    }

    fn ways<const N: usize>(&self, checks: &[Check<'_>], shared: &impl Shared) -> Few<Way, N> {
        let way = |(position, check): (usize, &Check<'_>)| {
            let sharing = shared.sharing(position);
            if sharing.is_local {
                return Way::Own;
            }
            let part = self.fleet.part_of(&check.key, sharing.place.as_ref());
            if self.is_leased(check, &sharing) {
                return Way::Leased { part };
            }
            if Self::is_counted(check, &sharing) {
                return Way::Counted { part };
            }
            self.by_store(part)
        };
        checks.iter().enumerate().take(N).map(way).collect()
    }

    /// The store, or what stands in for it while that part is away.
    pub(super) fn by_store(&self, part: usize) -> Way {
        match self.fleet.breakers.get(part) {
            Some(breaker) if breaker.is_closed() && !self.is_alone => Way::Shared { part },
            _ => Way::Away { part },
        }
    }

    /// Whether a place is one that this node gave while the store was away; then it is released or renewed.
    fn is_held_here(&self, check: &Check<'_>, id: LeaseId, answers: &mut [Answer]) -> bool {
        let Some(ruled) = self.stand_in(check, &Sharing::EXACT) else {
            return false;
        };
        let mut ask = |op| {
            let check = Check {
                ruled: &ruled,
                op,
                ..*check
            };
            self.local.decide(&[check], answers).is_ok()
                && answers
                    .first()
                    .is_some_and(|answer| answer.note != Note::LeaseNotHeld)
        };
        // A release does not say whether there was anything to be released.
        ask(Op::Renew(id)) && ask(check.op)
    }

    /// Waits for whoever asks about the same key, where that was denied a moment ago.
    async fn turn(&self, checks: &[Check<'_>], shared: &impl Shared) -> Turn<'_> {
        let generation = shared.sharing(0).generation;
        let denials = &self.fleet.denials;
        match denials.just_over(checks, self.local.now(), generation) {
            Some(key) => self.fleet.flights.turn(key).await,
            None => Turn::Alone,
        }
    }

    /// The refusal that is still true, if there is one.
    fn remembered<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        answers: &mut [Answer],
    ) -> Option<Verdict> {
        let generation = shared.sharing(0).generation;
        let mut known = [None; N];
        let known = known.get_mut(..checks.len())?;
        let denials = &self.fleet.denials;
        denials.ask(checks, self.local.now(), generation, known)?;
        for (answer, known) in answers.iter_mut().zip(known) {
            *answer = match known {
                Some(known) => Answer {
                    outcome: Outcome::Deny {
                        retry_after: known.retry_after,
                    },
                    status: known.status,
                    ..Answer::EMPTY
                },
                None => UNASKED,
            };
        }
        self.fleet.counters.count_remembered();
        Some(verdict_of(answers))
    }

    /// Decides on a batch, tier by tier, until one refuses. Whatever was carried out on this node is in `here`.
    async fn decide<const N: usize>(
        &self,
        checks: &[Check<'_>],
        shared: &impl Shared,
        (ways, whose): (&mut [Way], &[Who]),
        (answers, here): (&mut [Answer], &mut Few<Here, N>),
    ) -> Result<Told, StoreError> {
        if !self.decide_own(checks, ways, answers, here)?
            || !self.decide_counted(checks, shared, ways, answers, here)
        {
            return Ok(Told::ByAll(false));
        }
        if ways.iter().any(|way| matches!(way, Way::Away { .. }))
            && !self.decide_unanswered(checks, shared, (ways, false), answers, here)?
        {
            return Ok(Told::ByAll(false));
        }
        if ways.iter().any(|way| matches!(way, Way::Leased { .. }))
            && !self
                .decide_leased(checks, shared, ways, answers, here)
                .await?
        {
            return Ok(Told::ByAll(false));
        }
        // Those that have become the store's meanwhile were not asked for before.
        let denials = &self.fleet.denials;
        let who = |position: usize, check: &Check<'_>, generation| match whose.get(position) {
            Some(who) => *who,
            None => denials.who(&check.key, check.ruled.id, generation),
        };
        let asked: Asked<'_, N> = Asked::of(checks, shared, ways, who);
        if asked.checks.is_empty() {
            return Ok(Told::ByAll(true));
        }
        match self.ask_store(&asked, answers).await {
            Ok(verdict) => Ok(Told::ByAll(verdict.is_admitted())),
            Err(error) if error.is_callers_fault() => Err(error),
            Err(error) => {
                let ways: Few<Way, N> = ways.iter().map(|way| way.without_store()).collect();
                let ways = (&*ways, error.may_have_charged());
                let decided = self.decide_unanswered(checks, shared, ways, answers, here)?;
                Ok(Told::WithoutStore(decided))
            }
        }
    }

    /// Decides on what is this node's own, and answers whether all of it is admitted.
    fn decide_own<const N: usize>(
        &self,
        checks: &[Check<'_>],
        ways: &[Way],
        answers: &mut [Answer],
        here: &mut Few<Here, N>,
    ) -> Result<bool, StoreError> {
        if !ways.contains(&Way::Own) {
            return Ok(true);
        }
        let own = checks.iter().enumerate().zip(ways);
        let own: Few<Here, N> = own
            .filter(|(_, way)| **way == Way::Own)
            .map(|((position, check), _)| Here {
                position,
                ruled: *check.ruled,
                by: By::State,
            })
            .collect();
        let admits = self.decide_on::<N>(checks, &own, answers)?;
        if admits {
            here.extend(own);
        }
        Ok(admits)
    }

    /// Asks the store about its part of the batch.
    async fn ask_store<const N: usize>(
        &self,
        asked: &Asked<'_, N>,
        answers: &mut [Answer],
    ) -> Result<Verdict, StoreError> {
        let sent = self.local.now();
        let mut found: Few<Answer, N> = asked.checks.iter().map(|_| Answer::EMPTY).collect();
        let called = self
            .fleet
            .remote
            .decide(&asked.places, &asked.checks, &mut found)
            .await;
        // Which of several did not answer is not known; one that did is soon believed again.
        let answered = self.local.now();
        self.fleet
            .note(&asked.parts, answered, called.as_ref().err());
        let verdict = called?;
        for (position, found) in asked.positions.iter().zip(&found) {
            if let Some(answer) = answers.get_mut(*position) {
                *answer = *found;
            }
        }
        let when = (sent, answered.since(sent));
        self.fleet
            .denials
            .learn_of(&asked.whose, &asked.checks, &found, &asked.keeps, when);
        if verdict.is_admitted() && !asked.are_counters {
            for (check, answer) in asked.checks.iter().zip(&found) {
                self.fleet.note_admitted(self.local, check, answer);
            }
        }
        Ok(verdict)
    }
}

/// Not asked.
pub(super) const UNASKED: Answer = Answer {
    outcome: Outcome::Allow,
    note: Note::Unasked,
    ..Answer::EMPTY
};

fn verdict_of(answers: &[Answer]) -> Verdict {
    answers.iter().map(|answer| answer.outcome).collect()
}
