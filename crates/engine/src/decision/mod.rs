//! One request, from its attributes to the verdict, as a state machine that does no IO.
//!
//! Steps in order: enforced limits in one batch that charges all or none (`enforced.rs`); penalties of those that denied
//! (`follow_ups.rs`); candidates beside them (`candidates.rs`); then each shadow limit by itself, only if the request is
//! admitted (`shadow.rs`). A driver asks the store between the steps: see [`StoreSteps`]. Must not know: which store
//! answers, whether somebody waits for it.

mod candidates;
mod enforced;
mod follow_ups;
mod record;
mod scratch;
mod shadow;

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::Timestamp;
use tollgate_core::compose::Verdict as BatchOutcome;
use tollgate_policy::attributes::Attributes;
use tollgate_store::{QuotaCheck, StoreError, StoreReply};

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

/// A decision on one request that is under way. Made by [`Engine::decision`](crate::Engine::decision), run by a driver.
///
/// ```
/// use tollgate_engine::{CheckOptions, Engine, StoreSteps, checks};
/// use tollgate_policy::attributes::{Attribute, Attributes};
/// use tollgate_policy::rules::Rules;
/// use tollgate_policy::source::SourceFormat;
/// use tollgate_store::{MemoryStore, TestStore};
///
/// struct Nobody;
/// impl Attributes for Nobody {
///     fn get(&self, _: &Attribute) -> Option<&[u8]> {
///         None
///     }
/// }
///
/// let policy = tollgate_policy::load("limits: [{ name: all, rate: 1/m }]", "p.yaml", SourceFormat::Yaml)?;
/// let rules = Rules::compile(&policy, [7; 16]).map_err(|problems| format!("{problems:?}"))?;
/// let engine = Engine::new(rules, MemoryStore::for_keys(1_000)?)?;
///
/// // A driver of one's own: ask the store for as long as the decision wants to know something.
/// let mut decision = engine.decision(&Nobody, CheckOptions::default());
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
    /// Whether a fleet decides, which has to know where states lie.
    is_fleet: bool,
    generation: Guard<Arc<Generation>>,
    /// The version of the policy and of the overrides.
    version: u64,
    /// What operators have overridden, as it was when the decision began.
    overrides: Option<Guard<Option<Arc<OverrideSnapshot>>>>,
    /// The time, where operators have overridden something.
    now: Timestamp,
    scratch: PooledScratch,
    step: DecisionStep,
}

/// Which reply the decision waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DecisionStep {
    /// To the batch of all enforced limits.
    Enforced,
    /// To a penalty of an enforced limit, or to a limit that counts denials.
    EnforcedFollowUp,
    /// To the batch of one candidate.
    Candidate,
    /// To a charge of that candidate. It keeps what it was charged, or it was charged nothing.
    CandidateFollowUp { is_charged: bool },
    /// To the batch of one shadow limit.
    Shadow,
    /// To a penalty of that limit.
    ShadowFollowUp,
    /// To none.
    Done,
}

impl<'a> Decision<'a> {
    /// A decision that has found the limits which apply and waits for the store, or is made already.
    pub(crate) fn begin(
        generation: Guard<Arc<Generation>>,
        request: &'a dyn Attributes,
        options: CheckOptions,
        lease_ids: &'a LeaseIdGenerator,
        is_fleet: bool,
        now: impl FnOnce() -> Timestamp,
    ) -> Self {
        // Before the overrides: a denial by older ones must not be cached under a newer version.
        let version = if is_fleet { generation.version() } else { 0 };
        let overrides = generation.overrides().read();
        let mut decision = Self {
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
        };
        decision.scratch.clear();
        decision.start();
        decision
    }

    /// What was decided. To be called when nothing is left to ask.
    #[must_use]
    pub fn into_verdict(self) -> Verdict {
        Verdict::new(self.generation, self.scratch)
    }

    /// Gives up before the verdict is known. The ticket has to be cancelled: it is for what was charged already, and for
    /// places that the batch under way may have taken.
    #[must_use = "cancel the ticket, or its places are held until their leases end"]
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

    /// What plans are made from, and the room for everything else.
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
        };
        (context, work)
    }

    const fn charges(&self) -> bool {
        self.options.mode.charges()
    }

    /// Adds to the ticket what the answered checks of the plan leave to be settled.
    #[inline]
    fn collect_ticket(&mut self) {
        let reserves = matches!(self.options.mode, CheckMode::Reserve);
        if reserves || self.generation.has_tickets() {
            self.collect(reserves);
        }
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

    #[inline]
    fn check(&self, position: usize) -> Option<QuotaCheck<'_>> {
        let Work {
            plan, follow_ups, ..
        } = &self.scratch.work;
        let (planned, op) = match self.step {
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                let planned = plan.planned().get(position)?;
                (planned, planned.op)
            }
            _ => follow_ups.current(plan)?,
        };
        plan.check(&self.generation, planned, op)
    }

    fn sharing(&self, position: usize) -> Sharing<'_> {
        let Work {
            plan, follow_ups, ..
        } = &self.scratch.work;
        let planned = match self.step {
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                plan.planned().get(position)
            }
            _ => follow_ups.current(plan).map(|(planned, _)| planned),
        };
        planned.map_or(Sharing::EXACT, |planned| {
            plan.sharing(&self.generation, self.version, planned)
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
            DecisionStep::Enforced | DecisionStep::Candidate | DecisionStep::Shadow => {
                let work = &mut self.scratch.work;
                work.plan.set_replies(&self.generation, replies);
                match self.step {
                    DecisionStep::Enforced => self.on_enforced_replies(outcome.as_ref()),
                    DecisionStep::Candidate => self.on_candidate_replies(outcome.is_ok()),
                    _ => self.on_shadow_replies(outcome.as_ref()),
                }
            }
            DecisionStep::EnforcedFollowUp
            | DecisionStep::CandidateFollowUp { .. }
            | DecisionStep::ShadowFollowUp => {
                self.on_follow_up_reply(replies, outcome.is_ok());
            }
        }
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
