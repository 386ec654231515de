//! What the engine says about a request: whether it may go on, why not, where every limit stands, and what could not be
//! known for certain.
//!
//! A verdict keeps the room that the decision was made in, so that it is small and nothing is copied into it, and the
//! generation that it was decided by, so that names and messages are those of the policy in force then. Must not know: headers, bodies, how anything is decided.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::{Nanos, Outcome, QuotaStatus};
use tollgate_policy::rules::{MeterRole, Rule};

use crate::decision::PooledScratch;
use crate::generation::Generation;
use crate::plan::{KeyRef, QuotaRef};
use crate::quota_info::QuotaInfo;
use crate::ticket::Ticket;
use crate::verdict_builder::{DenialSource, VerdictBuilder};

/// Why a request is refused or has to wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DenialReason {
    /// Too many in too short a time.
    Rate,
    /// An allowance of a day or longer is used up: the whole of it takes at least a day to come back.
    Quota,
    /// Too many at once.
    Concurrency,
    /// The limiter itself cannot say for certain: its table is full of others, its store does not answer, or more
    /// limits apply than can be decided together.
    Capacity,
    /// An earlier denial blocked the key for a while, or an operator has blocked the key or the address.
    Blocked,
    /// The policy's `deny` list says so.
    Listed,
    /// An attribute that a limit insists on is missing.
    MissingKey,
    /// The path or host is too long to be read with certainty.
    Unreadable,
}

impl DenialReason {
    /// All there are, each at its own number.
    pub const ALL: [Self; 8] = [
        Self::Rate,
        Self::Quota,
        Self::Concurrency,
        Self::Capacity,
        Self::Blocked,
        Self::Listed,
        Self::MissingKey,
        Self::Unreadable,
    ];

    /// The word for it, wherever it is told.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Quota => "quota",
            Self::Concurrency => "concurrency",
            Self::Capacity => "capacity",
            Self::Blocked => "blocked",
            Self::Listed => "listed",
            Self::MissingKey => "missing_key",
            Self::Unreadable => "unreadable",
        }
    }
}

/// Whether a limit decides, or is only counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnforcementMode {
    /// It decides.
    Enforced,
    /// It is only counted.
    Shadow,
}

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `EnforcementMode`")]
pub type Standing = EnforcementMode;

/// What kept a verdict from being as exact as it should be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Degradation {
    /// A key had no room in the store and was decided by the overflow, which may deny too much.
    pub overflow: bool,
    /// The store did not answer; what limits say in that case was decided.
    pub store: bool,
}

/// Where one limit stands after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitState {
    pub(crate) rule: u32,
    pub(crate) meter: u16,
    pub(crate) key: KeyRef,
    pub(crate) quota: QuotaRef,
    pub(crate) role: MeterRole,
    /// Why it refuses or makes wait, if it does.
    pub(crate) reason: Option<DenialReason>,
    /// Whether it decides.
    pub enforcement: EnforcementMode,
    /// What the request costs here.
    pub cost: u64,
    /// What it says by itself.
    pub outcome: Outcome,
    /// What it admits at most and what is left.
    pub status: QuotaStatus,
}

impl LimitState {
    /// After how long the same request would be admitted, where it is not.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// Which rule it belongs to, by its index in the policy.
    #[must_use]
    pub fn rule_index(&self) -> usize {
        usize::try_from(self.rule).unwrap_or(usize::MAX)
    }

    /// Which of the rule's meters it is the state of, by its index.
    #[must_use]
    pub fn meter_index(&self) -> usize {
        usize::from(self.meter)
    }

    /// The part that the meter plays in its rule.
    #[must_use]
    pub const fn role(&self) -> MeterRole {
        self.role
    }

    /// Which of the meter's quotas decided, by its index: the limit's own, a tier's or an override's. `None` if it was
    /// computed for this request, or given by an operator; see [`Verdict::quota_info`].
    #[must_use]
    pub fn quota_index(&self) -> Option<usize> {
        match self.quota {
            QuotaRef::Listed(index) | QuotaRef::Queueing(index) => usize::try_from(index).ok(),
            QuotaRef::Computed(_) => None,
        }
    }
}

/// What the engine says about a request.
pub struct Verdict {
    generation: Guard<Arc<Generation>>,
    /// The room that the decision was made in, and what it found.
    scratch: PooledScratch,
}

impl Verdict {
    pub(crate) const fn new(generation: Guard<Arc<Generation>>, scratch: PooledScratch) -> Self {
        Self {
            generation,
            scratch,
        }
    }

    fn builder(&self) -> &VerdictBuilder {
        &self.scratch.work.verdict
    }

    /// What is to be done: go on, go on after a while, refuse for a while, or refuse for good.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.builder().outcome
    }

    /// Whether the request may go on, at once or after its wait.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.builder().outcome.is_admitted()
    }

    /// Why it is refused or has to wait.
    #[must_use]
    pub fn reason(&self) -> Option<DenialReason> {
        self.builder().reason
    }

    /// Every limit that was asked, in the order of the policy: those that are enforced, then those in shadow. At most 32;
    /// shadow limits beyond that are counted but not listed.
    #[must_use]
    pub fn limits(&self) -> &[LimitState] {
        self.builder().states()
    }

    /// The limit that decided: of several that refuse, the one to wait for longest. If nobody refuses, the enforced one
    /// of which the smallest part is left.
    #[must_use]
    pub fn binding(&self) -> Option<&LimitState> {
        self.limits().get(self.builder().binding?)
    }

    /// What kept the verdict from being exact.
    #[must_use]
    pub fn degraded(&self) -> Degradation {
        self.builder().degraded
    }

    /// The quota that decided on a state, as far as header fields tell of it.
    #[must_use]
    pub fn quota_info(&self, state: &LimitState) -> QuotaInfo<'_> {
        let quota = (state.rule_index(), state.meter_index(), state.quota);
        self.scratch
            .work
            .plan
            .quota_info_at(&self.generation, quota)
    }

    /// The encoded key that a state belongs to, empty where everybody is counted together. Keys are secrets: digest them
    /// before they go anywhere.
    #[must_use]
    pub fn key(&self, state: &LimitState) -> &[u8] {
        self.scratch.work.plan.key(state.key)
    }

    /// The version of the policy that it was decided by.
    #[must_use]
    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    /// The rule that a state belongs to.
    #[must_use]
    pub fn rule(&self, state: &LimitState) -> Option<&Rule> {
        self.generation.rules().rules().get(state.rule_index())
    }

    /// The level that a state belongs to, where its rule is a hierarchy.
    #[must_use]
    pub fn level(&self, state: &LimitState) -> Option<&str> {
        let meter = self.rule(state)?.meters.get(usize::from(state.meter))?;
        meter.level.as_deref()
    }

    /// The status to refuse with. `None` if the request is admitted.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        if self.is_admitted() {
            return None;
        }
        let status = match (self.builder().denied_by, self.builder().reason) {
            (Some(DenialSource::List(index)), _) => {
                let entry = self.generation.rules().denials().get(index);
                entry.map_or(403, |entry| entry.status)
            }
            (Some(DenialSource::Operator), _) => 403,
            (_, Some(DenialReason::Unreadable)) => 400,
            (Some(DenialSource::Rule(_)), Some(DenialReason::Capacity))
            | (Some(DenialSource::Engine), _) => 503,
            _ => self.denying_rule().map_or(429, |rule| rule.status),
        };
        Some(status)
    }

    /// The message to refuse with, if the policy has one.
    #[must_use]
    pub fn message(&self) -> Option<&str> {
        if self.is_admitted() {
            return None;
        }
        if let Some(DenialSource::List(index)) = self.builder().denied_by {
            let entry = self.generation.rules().denials().get(index)?;
            return entry.message.as_deref();
        }
        self.denying_rule()?.message.as_deref()
    }

    /// The name of the rule that refuses, or makes wait.
    #[must_use]
    pub fn rule_name(&self) -> Option<&str> {
        self.denying_rule().map(|rule| &*rule.name)
    }

    /// What has to be settled when the response is known, or given up: hand it to
    /// [`Engine::respond`](crate::Engine::respond). `None` where nothing has to be, and after it was taken.
    pub fn take_ticket(&mut self) -> Option<Ticket> {
        self.scratch.work.verdict.ticket.take()
    }

    fn denying_rule(&self) -> Option<&Rule> {
        let index = match self.builder().denied_by {
            Some(DenialSource::Rule(index)) => index,
            Some(_) => return None,
            None => self
                .binding()
                .filter(|_| self.builder().reason.is_some())?
                .rule_index(),
        };
        self.generation.rules().rules().get(index)
    }
}

impl fmt::Debug for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verdict")
            .field("generation", &self.generation.number())
            .field("outcome", &self.builder().outcome)
            .field("reason", &self.builder().reason)
            .field("binding", &self.builder().binding)
            .field("degraded", &self.builder().degraded)
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}
