//! One request, from what is known of it to the verdict.
//!
//! Enforced limits are decided in one step that charges all or none. Limits in shadow never take part in it: each is
//! decided by itself afterwards, and only if the request was admitted. Must not know: how batches are planned, what a
//! denial leads to, how a generation is made.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::{Mode, OnStoreFailure};
use tollgate_policy::rules::{Found, Listed, Role};
use tollgate_store::{Answer, Note, Op, StoreError};

use crate::aftermath;
use crate::asks::Asks;
use crate::counters::Event;
use crate::findings::{Findings, Refuser};
use crate::generation::Generation;
use crate::lots::Lots;
use crate::plan::{Added, Asking, Manner, Plan, Planned};
use crate::stance::Stances;
use crate::ticket::Ticket;
use crate::trial::{Word, Words};
use crate::verdict::{LimitState, Reason, Standing, Verdict};
use crate::witness::{Seen, Witness};

/// How long whoever is refused for want of a store is told to wait.
const STORE_RETRY: Nanos = Nanos::SECOND;

/// Room that every thread keeps for its decisions.
#[derive(Debug)]
pub(crate) struct Scratch {
    found: Found,
    plan: Plan,
}

thread_local! {
    static OWN: Cell<Option<Box<Scratch>>> = const { Cell::new(None) };
    /// Those of decisions that were under way at the same time, because they waited.
    #[expect(clippy::vec_box, reason = "they are handed on in their boxes, and are large")]
    static OTHERS: RefCell<Vec<Box<Scratch>>> = const { RefCell::new(Vec::new()) };
}

/// The most that a thread keeps beside its own. More decisions than that wait at the same time only in a bad moment.
const MOST_KEPT: usize = 256;

impl Scratch {
    /// This thread's room for decisions. A decision that begins before another has ended (a request whose attributes ask the
    /// engine, a store that is waited for) gets its own.
    pub(crate) fn take() -> Box<Self> {
        let new = || {
            Box::new(Self {
                found: Found::new(),
                plan: Plan::new(),
            })
        };
        OWN.take()
            .or_else(|| OTHERS.with_borrow_mut(Vec::pop))
            .unwrap_or_else(new)
    }

    /// Leaves it for the next decision of the thread that this one ended on.
    pub(crate) fn keep(self: Box<Self>) {
        if let Some(other) = OWN.replace(Some(self)) {
            OTHERS.with_borrow_mut(|others| {
                if others.len() < MOST_KEPT {
                    others.push(other);
                }
            });
        }
    }
}

/// What a decision is made with.
pub(crate) struct Decision<'a, S> {
    pub(crate) store: S,
    pub(crate) lots: &'a Lots,
    pub(crate) request: &'a dyn Attributes,
    pub(crate) cost: Option<u64>,
    pub(crate) manner: Manner,
    /// Whether all that is charged may be settled later.
    pub(crate) reserves: bool,
    /// Who is told of keys and quotas, if anybody wants to know.
    pub(crate) witness: Option<&'a dyn Witness>,
}

impl<S: Asks> Decision<'_, S> {
    /// Makes the decision; what is found out goes straight into the verdict, which is too large to be copied for fun.
    pub(crate) async fn make(&self, verdict: &mut Verdict, scratch: &mut Scratch) {
        let Verdict {
            generation,
            findings,
        } = verdict;
        self.fill(generation, scratch, findings).await;
    }

    async fn fill(
        &self,
        generation: &Arc<Generation>,
        scratch: &mut Scratch,
        findings: &mut Findings,
    ) {
        let Scratch { found, plan } = scratch;
        let desk = generation.desk().read();
        let desk = desk.as_ref().and_then(|desk| desk.as_deref());
        let now = desk.map_or(Timestamp::EPOCH, |_| self.store.now());
        if let Some(desk) = desk {
            if desk.is_off() {
                return;
            }
            let address = self.request.ip();
            if let Some(until) = address.and_then(|address| desk.addresses.find(address, now)) {
                let outcome = until.refusal(now);
                return findings.refuse(Refuser::Operator, Reason::Blocked, outcome);
            }
        }
        generation.rules().find(self.request, found);
        if let Listed::Denied(index) = found.listed() {
            return findings.refuse(Refuser::List(index), Reason::Listed, Outcome::Never);
        }
        // Before being exempt: who cannot be read may have been spelled so as to look exempt.
        if found.unreadable() {
            return findings.refuse(Refuser::Engine, Reason::Unreadable, Outcome::Never);
        }
        if found.listed() == Listed::Exempt {
            return;
        }
        let asking = Asking {
            generation,
            request: self.request,
            found,
            route: generation.rules().route(self.request, found),
            cost: self.cost,
            manner: self.manner,
            lots: self.lots,
            desk,
            now,
            places: S::SHARES,
            witness: self.witness,
        };
        plan.clear();
        let stances = Stances::of(&asking, plan);
        let is_answered = self
            .decide_enforced(&asking, &stances, plan, findings)
            .await;
        if self.manner == Manner::Charge && is_answered {
            if findings.is_admitted() {
                Ticket::collect(&mut findings.ticket, generation, plan, self.reserves);
            }
            if generation.has_trials() {
                let words = Words::of(generation, plan);
                let words = (words.iter(), Standing::Enforced);
                self.compare(&asking, generation, words, plan, findings)
                    .await;
            }
        }
        if findings.is_admitted() {
            for index in stances.rules_in(found, Mode::Shadow) {
                let word = self.decide_shadow(&asking, index, plan, findings).await;
                if self.manner == Manner::Charge {
                    Ticket::collect(&mut findings.ticket, generation, plan, self.reserves);
                    let word = (word.into_iter(), Standing::Shadow);
                    self.compare(&asking, generation, word, plan, findings)
                        .await;
                }
            }
        }
    }

    /// Answers whether the store did, as far as it was asked.
    async fn decide_enforced(
        &self,
        asking: &Asking<'_>,
        stances: &Stances,
        plan: &mut Plan,
        findings: &mut Findings,
    ) -> bool {
        if asking.found.more_than_fit() {
            refuse_too_many(findings);
        }
        for index in stances.rules_in(asking.found, Mode::Enforce) {
            let (reason, outcome) = match plan.add(asking, index, Standing::Enforced) {
                Added::Asked => continue,
                Added::TooMany => {
                    refuse_too_many(findings);
                    continue;
                }
                Added::NoKey => (Reason::MissingKey, Outcome::Never),
                Added::Blocked(until) => (Reason::Blocked, until.refusal(asking.now)),
            };
            self.count(asking, index, Event::Denied);
            if !findings.is_refused() {
                findings.refuse(Refuser::Rule(index), reason, outcome);
            }
        }
        if findings.is_refused() {
            if self.manner == Manner::Charge {
                aftermath::count_denial(plan, asking.generation, &self.store).await;
            }
            return true;
        }
        if plan.planned().is_empty() {
            return true;
        }
        if let Err(error) = self.ask(asking, plan).await {
            self.without_store(asking, plan, findings, &error);
            return false;
        }
        for (planned, answer) in plan.answered() {
            record(asking, plan, planned, answer, Standing::Enforced, findings);
        }
        findings.conclude();
        if self.manner != Manner::Charge {
            return true;
        }
        if !findings.is_admitted() {
            let states = findings.states_mut();
            aftermath::punish(plan, asking.generation, &self.store, states).await;
            aftermath::count_denial(plan, asking.generation, &self.store).await;
            findings.conclude();
        }
        self.count_all(asking, plan, findings.is_admitted(), Event::Denied);
        true
    }

    async fn decide_shadow(
        &self,
        asking: &Asking<'_>,
        index: usize,
        plan: &mut Plan,
        findings: &mut Findings,
    ) -> Option<Word> {
        plan.restart();
        let is_counted = self.manner == Manner::Charge;
        match plan.add(asking, index, Standing::Shadow) {
            Added::Asked if plan.planned().is_empty() => return None,
            Added::Asked => {}
            Added::NoKey | Added::TooMany | Added::Blocked(_) => {
                if is_counted {
                    self.count(asking, index, Event::WouldDeny);
                }
                return None;
            }
        }
        if self.ask(asking, plan).await.is_err() {
            self.count(asking, index, Event::Error);
            // Nothing was answered, so nothing is owed.
            plan.restart();
            return None;
        }
        let word = Words::first(asking.generation, plan);
        let from = findings.states().len();
        for (planned, answer) in plan.answered() {
            record(asking, plan, planned, answer, Standing::Shadow, findings);
        }
        if !is_counted {
            return None;
        }
        let is_admitted = plan
            .answered()
            .all(|(_, answer)| answer.outcome.is_admitted());
        if !is_admitted {
            let states = findings.states_mut().get_mut(from..).unwrap_or_default();
            aftermath::punish(plan, asking.generation, &self.store, states).await;
        }
        self.count_all(asking, plan, is_admitted, Event::WouldDeny);
        if !is_admitted {
            // Nothing was charged, so nothing is owed.
            plan.restart();
        }
        word
    }

    /// Asks about all that is planned. Whoever shows a value that another was first to show is asked again without it.
    async fn ask(&self, asking: &Asking<'_>, plan: &mut Plan) -> Result<(), StoreError> {
        loop {
            let verdict = plan.ask(asking.generation, &self.store).await?;
            if verdict.is_admitted() || !plan.forgo_seen() {
                return Ok(());
            }
        }
    }

    /// The store did not answer, and nothing stands in for it: every limit says what that means.
    fn without_store(
        &self,
        asking: &Asking<'_>,
        plan: &Plan,
        findings: &mut Findings,
        _error: &StoreError,
    ) {
        findings.degraded.store = true;
        let mut last = None;
        for planned in plan.planned() {
            if last.replace(planned.rule) == Some(planned.rule) {
                continue;
            }
            self.count(asking, planned.rule, Event::Error);
            let rule = asking.generation.rule(planned.rule).map(|(rule, _)| rule);
            let closed = rule.is_some_and(|rule| rule.on_store_failure == OnStoreFailure::Closed);
            if closed && !findings.is_refused() {
                let outcome = Outcome::Deny {
                    retry_after: STORE_RETRY,
                };
                findings.refuse(Refuser::Rule(planned.rule), Reason::Capacity, outcome);
            }
        }
    }

    fn count(&self, asking: &Asking<'_>, rule: usize, event: Event) {
        if self.manner == Manner::Charge
            && let Some((_, entry)) = asking.generation.rule(rule)
        {
            entry.counters.count(event);
        }
    }

    /// Counts what each rule of the plan has said, once for all of its meters.
    fn count_all(&self, asking: &Asking<'_>, plan: &Plan, is_admitted: bool, denied: Event) {
        let mut answered = plan.answered().peekable();
        while let Some((first, _)) = answered.peek() {
            let rule = first.rule;
            let mut sum = RuleSum::default();
            while let Some((planned, answer)) = answered.next_if(|(one, _)| one.rule == rule) {
                sum.add(planned, answer);
            }
            if is_admitted {
                self.count(asking, rule, Event::Allowed);
            }
            for (occurred, event) in [
                (sum.denies, denied),
                (sum.waits && is_admitted, Event::Waited),
                (sum.is_near && is_admitted, Event::NearLimit),
                (sum.overflowed, Event::Overflow),
            ] {
                if occurred {
                    self.count(asking, rule, event);
                }
            }
        }
    }
}

/// What the meters of one rule said together.
#[derive(Default)]
struct RuleSum {
    denies: bool,
    waits: bool,
    is_near: bool,
    overflowed: bool,
}

impl RuleSum {
    fn add(&mut self, planned: &Planned, answer: &Answer) {
        if is_unknown(answer) {
            return;
        }
        self.denies |= !answer.outcome.is_admitted();
        self.waits |= matches!(answer.outcome, Outcome::Wait(_));
        self.overflowed |= answer.note == Note::Overflow;
        let status = &answer.status;
        let is_limit = matches!(planned.role, Role::Main | Role::Local);
        self.is_near |= is_limit && status.remaining.saturating_mul(5) <= status.limit;
    }
}

fn refuse_too_many(findings: &mut Findings) {
    if !findings.is_refused() {
        findings.refuse(Refuser::Engine, Reason::Capacity, Outcome::Never);
    }
}

/// Whether it is not known where a limit stands.
const fn is_unknown(answer: &Answer) -> bool {
    matches!(answer.note, Note::Waived | Note::Unasked)
}

/// Notes where a limit stands. Blocks are noted while they last, and what was seen never is.
fn record(
    asking: &Asking<'_>,
    plan: &Plan,
    planned: &Planned,
    answer: &Answer,
    standing: Standing,
    findings: &mut Findings,
) {
    findings.degraded.overflow |= answer.note == Note::Overflow;
    findings.degraded.store |= matches!(answer.note, Note::StandIn | Note::Waived);
    if is_unknown(answer) {
        return;
    }
    let is_quiet = match planned.role {
        Role::Main | Role::Local => false,
        Role::Block => answer.outcome.is_admitted(),
        _ => true,
    };
    if is_quiet {
        return;
    }
    let told = plan.told(asking.generation, planned);
    let reason = match (planned.role, answer.note) {
        (Role::Block, _) => Reason::Blocked,
        (_, Note::Overflow) => Reason::Capacity,
        _ => told.reason,
    };
    if let Some(witness) = asking.witness {
        let seen = Seen {
            key: plan.key_of(planned),
            cost: planned.cost,
            window: told.window(),
            more_after: told.more_after(&answer.status),
        };
        witness.saw(findings.states().len(), &seen);
    }
    findings.push(LimitState {
        rule: u32::try_from(planned.rule).unwrap_or(u32::MAX),
        meter: u16::try_from(planned.meter).unwrap_or(u16::MAX),
        role: planned.role,
        reason,
        unit: told.unit,
        listed: told.listed,
        standing,
        outcome: looked_at(planned, answer),
        status: answer.status,
    });
}

/// What a limit says. A look at places answers only how many there are.
pub(crate) fn looked_at(planned: &Planned, answer: &Answer) -> Outcome {
    let is_look = matches!(planned.op, Op::Acquire { weight: 0, .. });
    if is_look && planned.cost > answer.status.limit {
        Outcome::Never
    } else if is_look && planned.cost > answer.status.remaining {
        Outcome::Deny {
            retry_after: answer.status.reset_after.max(Nanos::from_nanos(1)),
        }
    } else {
        answer.outcome
    }
}
