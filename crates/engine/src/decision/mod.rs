//! One decision: from a request's attributes to the verdict, as a state machine that does no IO.
//!
//! The steps in order: all enforced limits in one batch that charges all or none (`enforced.rs`); their penalties
//! (`follow_ups.rs`); their candidates (`candidates.rs`); then each shadow limit by itself, if the request is admitted
//! (`shadow.rs`). Between the steps a driver asks the store: see [`StoreSteps`]. If only the keys of the checks depend on the
//! request, `direct.rs` skips the planning. Must not know: which store answers, whether the driver waits.

mod candidates;
mod direct;
mod enforced;
mod follow_ups;
mod record;
mod scratch;
mod shadow;

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Outcome, Timestamp};
use tollgate_policy::attributes::Attributes;
use tollgate_store::{Op, QuotaCheck, StoreError, StoreReply};

pub(crate) use self::record::peeked_outcome;
pub(crate) use self::scratch::PooledScratch;
use self::scratch::{Scratch, Work};
use crate::check_options::{CheckMode, CheckOptions};
use crate::generation::Generation;
use crate::lease_ids::LeaseIdGenerator;
use crate::override_snapshot::OverrideSnapshot;
use crate::plan::PlanContext;
use crate::sharing::Sharing;
use crate::steps::StoreSteps;
use crate::ticket::Ticket;
use crate::verdict::Verdict;

/// A decision in progress. [`Engine::decision`](crate::Engine::decision) creates it, a driver runs it.
///
/// ```
/// use tollgate_engine::{CheckOptions, Engine, StoreSteps, checks};
/// use tollgate_policy::attributes::{Attribute, Attributes};
/// use tollgate_policy::rules::Rules;
/// use tollgate_policy::source::SourceFormat;
/// use tollgate_store::{MemoryStore, Store};
///
/// struct NoAttributes;
/// impl Attributes for NoAttributes {
///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
///         None
///     }
/// }
///
/// let policy = tollgate_policy::load("limits: [{ name: all, rate: 1/m }]", "p.yaml", SourceFormat::Yaml)?;
/// let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
///
/// // A custom driver: ask the store until the decision has no more checks.
/// let mut decision = engine.decision(&NoAttributes, CheckOptions::default());
/// while decision.batch_len() > 0 {
///     let mut replies = decision.take_replies();
///     let outcome = engine.store().decide(&checks::<32, _>(&decision), &mut replies);
///     decision.resume(replies, outcome);
/// }
/// assert!(decision.into_verdict().is_admitted());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a decision decides nothing until a driver runs it"]
pub struct Decision<'a> {
    request: &'a dyn Attributes,
    lease_ids: &'a LeaseIdGenerator,
    options: CheckOptions,
    /// Whether a fleet decides. Then checks need their slot keys.
    is_fleet: bool,
    generation: Guard<Arc<Generation>>,
    /// The version of the policy and the overrides.
    version: u64,
    /// The operators' overrides when the decision started.
    overrides: Option<Guard<Option<Arc<OverrideSnapshot>>>>,
    /// The time; only read if there are overrides.
    now: Timestamp,
    scratch: PooledScratch,
    step: DecisionStep,
}

/// The reply that a decision waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionStep {
    /// The batch of all enforced limits.
    Enforced,
    /// A penalty of an enforced limit, or a limit that counts denials.
    EnforcedFollowUp,
    /// The batch of one candidate.
    Candidate,
    /// A charge of that candidate. `is_charged`: the candidate admitted and keeps its charge.
    CandidateFollowUp { is_charged: bool },
    /// The batch of one shadow limit.
    Shadow,
    /// A penalty of that shadow limit.
    ShadowFollowUp,
    /// None: the verdict is ready.
    Done,
}

impl<'a> Decision<'a> {
    /// A decision that has not begun. Apart from [`begin`](Self::begin), so that the caller's copy is filled in place.
    #[inline(always)]
    pub(crate) fn new(
        generation: Guard<Arc<Generation>>,
        request: &'a dyn Attributes,
        options: CheckOptions,
        lease_ids: &'a LeaseIdGenerator,
        is_fleet: bool,
        now: impl FnOnce() -> Timestamp,
    ) -> Self {
        // Before the overrides: a denial by older overrides must not be cached under a newer version.
        let version = if is_fleet { generation.version() } else { 0 };
        let overrides = generation.overrides().read();
        Self {
            version,
            request,
            lease_ids,
            options,
            is_fleet,
            now: overrides.as_ref().map_or(Timestamp::EPOCH, |_| now()),
            generation,
            overrides,
            scratch: PooledScratch::take(),
            step: DecisionStep::Done,
        }
    }

    /// Matches the limits and plans the first batch. The verdict may be ready at once.
    #[inline]
    pub(crate) fn begin(&mut self) {
        self.scratch.clear();
        self.start();
    }

    /// The verdict. Call it when [`batch_len`](StoreSteps::batch_len) is zero.
    #[must_use]
    #[inline(always)]
    pub fn into_verdict(self) -> Verdict {
        Verdict::new(self.generation, self.scratch)
    }

    /// Gives up before the verdict is ready. Cancel the returned ticket: it covers the charges so far, and the permits
    /// that the current batch may have acquired.
    #[must_use = "cancel the ticket, or its permits are held until their leases expire"]
    pub fn abandon(&mut self) -> Option<Ticket> {
        let generation = &self.generation;
        let Work { plan, verdict, .. } = &mut self.scratch.work;
        let step = std::mem::replace(&mut self.step, DecisionStep::Done);
        let is_batch = matches!(
            step,
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow
        );
        if is_batch && self.options.mode.charges() {
            Ticket::collect_permits(&mut verdict.ticket, generation, plan);
        }
        verdict.ticket.take()
    }

    /// The inputs of a plan, and the mutable scratch space.
    #[inline]
    fn split(&mut self) -> (PlanContext<'_>, &mut Work) {
        let Scratch {
            matched: found,
            work,
        } = &mut *self.scratch;
        let overrides = self.overrides.as_ref();
        let context = PlanContext {
            generation: &self.generation,
            request: self.request,
            matched: found,
            options: self.options,
            lease_ids: self.lease_ids,
            overrides: overrides.and_then(|overrides| overrides.as_deref()),
            now: self.now,
            is_fleet: self.is_fleet,
            is_plain_charge: overrides.is_none()
                && self.options.max_wait.is_none()
                && self.options.mode.charges(),
        };
        (context, work)
    }

    /// The batch was denied: plans another one, if some limit has another way to decide the request.
    fn retry_denied(&mut self) -> bool {
        // A concurrent request already recorded this distinct value: retry without counting it.
        self.scratch.work.plan.retry_without_distinct()
            || (self.generation.has_second_quotas() && self.retry_with_second_quota())
    }

    #[cold]
    fn retry_with_second_quota(&mut self) -> bool {
        let (context, work) = self.split();
        work.plan.retry_with_second_quota(&context)
    }

    /// The check of a penalty or of a limit that counts denials.
    #[cold]
    fn follow_up_check(&self) -> Option<QuotaCheck<'_>> {
        let Work {
            plan, follow_ups, ..
        } = &self.scratch.work;
        let (planned, op) = follow_ups.current(plan)?;
        plan.check(&self.generation, &planned, op)
    }

    #[inline(always)]
    fn set_replies(&mut self, replies: Vec<StoreReply>) {
        let plan = &mut self.scratch.work.plan;
        plan.set_replies(&self.generation, replies);
    }

    const fn charges(&self) -> bool {
        self.options.mode.charges()
    }

    /// Adds to the ticket what the plan's checks leave to settle.
    #[inline]
    fn collect_ticket(&mut self) {
        let reserves = matches!(self.options.mode, CheckMode::Reserve);
        if reserves || self.generation.has_tickets() {
            self.collect(reserves);
        }
        if matches!(self.scratch.work.verdict.outcome, Outcome::Wait(_)) && !reserves {
            self.collect_wait();
        }
    }

    /// Keeps what to cancel if the request does not wait until its turn.
    #[cold]
    fn collect_wait(&mut self) {
        let Work { plan, verdict, .. } = &mut self.scratch.work;
        Ticket::collect_wait(&mut verdict.wait_ticket, &self.generation, plan);
    }

    fn collect(&mut self, reserves: bool) {
        let Work { plan, verdict, .. } = &mut self.scratch.work;
        Ticket::collect(&mut verdict.ticket, &self.generation, plan, reserves);
    }
}

impl StoreSteps for Decision<'_> {
    #[inline]
    fn batch_len(&self) -> usize {
        match self.step {
            DecisionStep::Done => 0,
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                self.scratch.work.plan.planned().len()
            }
            DecisionStep::EnforcedFollowUp
            | DecisionStep::CandidateFollowUp { .. }
            | DecisionStep::ShadowFollowUp => 1,
        }
    }

    #[inline(always)]
    fn check(&self, position: usize) -> Option<QuotaCheck<'_>> {
        match self.step {
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                let plan = &self.scratch.work.plan;
                let planned = plan.planned().get(position)?;
                let is_first = self.step == DecisionStep::Enforced;
                let op = match is_first && self.options.is_before_claims() {
                    true => peek_op(planned.op),
                    false => planned.op,
                };
                plan.check(&self.generation, planned, op)
            }
            _ => self.follow_up_check(),
        }
    }

    fn sharing(&self, position: usize) -> Sharing<'_> {
        let Work {
            plan, follow_ups, ..
        } = &self.scratch.work;
        let planned = match self.step {
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                plan.planned().get(position).copied()
            }
            _ => follow_ups.current(plan).map(|(planned, _)| planned),
        };
        planned.map_or(Sharing::EXACT, |planned| {
            plan.sharing(&self.generation, self.version, &planned)
        })
    }

    #[inline]
    fn take_replies(&mut self) -> Vec<StoreReply> {
        let len = self.batch_len();
        let Work {
            plan, follow_ups, ..
        } = &mut self.scratch.work;
        let mut replies = match self.step {
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                plan.take_reply_buffer()
            }
            _ => follow_ups.take_reply_buffer(),
        };
        replies.clear();
        replies.resize(len, StoreReply::EMPTY);
        replies
    }

    #[inline]
    fn resume(&mut self, replies: Vec<StoreReply>, outcome: Result<BatchOutcome, StoreError>) {
        match self.step {
            DecisionStep::Done => {}
            DecisionStep::Enforced => {
                self.set_replies(replies);
                self.on_enforced_replies(outcome.as_ref());
            }
            DecisionStep::Candidate => {
                self.set_replies(replies);
                self.on_candidate_replies(outcome.is_ok());
            }
            DecisionStep::Shadow => {
                self.set_replies(replies);
                self.on_shadow_replies(outcome.as_ref());
            }
            DecisionStep::EnforcedFollowUp
            | DecisionStep::CandidateFollowUp { .. }
            | DecisionStep::ShadowFollowUp => {
                self.on_follow_up_reply(replies, outcome.is_ok());
            }
        }
    }
}

/// The operation that decides the same and charges nothing. Concurrency limits are not planned before claims are known.
const fn peek_op(op: Op) -> Op {
    match op {
        Op::Spend(cost) => Op::Peek(cost),
        // Both never deny.
        Op::ChargeAlways(_) | Op::Credit(_) => Op::Peek(0),
        other => other,
    }
}

impl fmt::Debug for Decision<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decision")
            .field("generation", &self.generation.number())
            .field("options", &self.options)
            .field("step", &self.step)
            .finish_non_exhaustive()
    }
}
