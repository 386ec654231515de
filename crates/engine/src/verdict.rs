//! The verdict on a request: whether it is admitted, the reason if not, the state of every limit, and whether the
//! result is degraded.
//!
//! A verdict keeps the decision's scratch memory, so that nothing is copied. It also keeps its generation, so that
//! names and messages belong to the policy that decided. Must not know: header fields, bodies, how anything is decided.

use std::fmt;
use std::sync::Arc;

use arc_swap::Guard;
use tollgate_core::{Nanos, Outcome, QuotaStatus};
use tollgate_policy::rules::{MeterRole, Rule, Unreadable};

use crate::decision::PooledScratch;
use crate::generation::Generation;
use crate::plan::{KeyRef, QuotaRef};
use crate::quota_info::QuotaInfo;
use crate::ticket::Ticket;
use crate::verdict_builder::{DenialSource, VerdictBuilder};

/// Why a request is denied or delayed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DenialReason {
    /// Too many requests in a window shorter than a day.
    Rate,
    /// A quota that takes a day or longer to refill is used up.
    Quota,
    /// Too many concurrent requests.
    Concurrency,
    /// The limiter cannot decide exactly: its table is full, its store does not answer, or too many limits apply to one
    /// request.
    Capacity,
    /// A penalty blocked the key, or an operator blocked the key or the address.
    Blocked,
    /// The policy's `deny` list matched.
    Listed,
    /// A limit needs an attribute that the request does not have.
    MissingKey,
    /// The path, the host or a repeated value can be read in different ways, so that no rule can be sure of it.
    Unreadable,
}

impl DenialReason {
    /// All reasons, in the order of their discriminants.
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

    /// The name of the reason in responses, logs and metrics.
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

/// Whether a limit is enforced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EnforcementMode {
    /// The limit decides.
    Enforced,
    /// The limit is only counted.
    Shadow,
}

#[doc(hidden)]
#[deprecated(since = "0.2.0", note = "renamed to `EnforcementMode`")]
pub type Standing = EnforcementMode;

/// Why a verdict may be inexact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Degradation {
    /// A key had no room in the store; the overflow sketch decided, which may deny too much.
    pub overflow: bool,
    /// The store did not answer; `on_store_failure` decided.
    pub store: bool,
}

/// The state of one limit after the request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LimitState {
    pub(crate) rule: u32,
    pub(crate) meter: u16,
    pub(crate) key: KeyRef,
    pub(crate) quota: QuotaRef,
    pub(crate) role: MeterRole,
    /// Why the limit denies or delays the request.
    pub(crate) reason: Option<DenialReason>,
    /// Whether the limit is enforced.
    pub enforcement: EnforcementMode,
    /// The cost of the request under this limit.
    pub cost: u64,
    /// The limit's own outcome.
    pub outcome: Outcome,
    /// The limit's capacity and what remains.
    pub status: QuotaStatus,
}

impl LimitState {
    /// The time until the same request would be admitted, if it is denied.
    #[must_use]
    pub const fn retry_after(&self) -> Option<Nanos> {
        match self.outcome {
            Outcome::Deny { retry_after } => Some(retry_after),
            _ => None,
        }
    }

    /// The index of the rule in the policy.
    #[must_use]
    pub fn rule_index(&self) -> usize {
        usize::try_from(self.rule).unwrap_or(usize::MAX)
    }

    /// The index of the meter in the rule.
    #[must_use]
    pub fn meter_index(&self) -> usize {
        usize::from(self.meter)
    }

    /// The meter's role in its rule.
    #[must_use]
    pub const fn role(&self) -> MeterRole {
        self.role
    }

    /// The index of the meter's quota that decided: the limit's own, a tier's or an override's. `None` for a quota that
    /// was computed for this request, or set by an operator; see [`Verdict::quota_info`].
    #[must_use]
    pub fn quota_index(&self) -> Option<usize> {
        match self.quota {
            QuotaRef::Listed(index) | QuotaRef::Queueing(index) => usize::try_from(index).ok(),
            QuotaRef::Computed(_) => None,
        }
    }
}

/// The engine's verdict on a request.
pub struct Verdict {
    generation: Guard<Arc<Generation>>,
    /// The scratch memory of the decision, with its result.
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

    /// Admit, admit after a delay, deny for some time, or deny for good.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        self.builder().outcome
    }

    /// Whether the request is admitted, at once or after a delay.
    #[must_use]
    pub fn is_admitted(&self) -> bool {
        self.builder().outcome.is_admitted()
    }

    /// Why the request is denied or delayed.
    #[must_use]
    pub fn reason(&self) -> Option<DenialReason> {
        self.builder().reason
    }

    /// All limits that were checked, in the order of the policy: the enforced ones, then those in shadow. At most 128;
    /// further shadow limits are counted but not listed.
    #[must_use]
    pub fn limits(&self) -> &[LimitState] {
        self.builder().states()
    }

    /// The binding limit: of several that deny, the one with the longest wait. If none denies, the enforced limit with
    /// the smallest fraction left.
    #[must_use]
    pub fn binding(&self) -> Option<&LimitState> {
        self.limits().get(self.builder().binding_index()?)
    }

    /// Why the verdict may be inexact.
    #[must_use]
    pub fn degraded(&self) -> Degradation {
        self.builder().degraded
    }

    /// The description of the quota that decided a state, for header fields.
    #[must_use]
    pub fn quota_info(&self, state: &LimitState) -> QuotaInfo<'_> {
        let quota = (state.rule_index(), state.meter_index(), state.quota);
        self.scratch
            .work
            .plan
            .quota_info_at(&self.generation, quota)
    }

    /// The encoded key of a state; empty if the limit has no key. Keys are secrets: digest them before you output them.
    #[must_use]
    pub fn key(&self, state: &LimitState) -> &[u8] {
        self.scratch.work.plan.key(state.key)
    }

    /// The version of the policy that decided.
    #[must_use]
    pub fn generation(&self) -> &Generation {
        &self.generation
    }

    /// The rule of a state.
    #[must_use]
    pub fn rule(&self, state: &LimitState) -> Option<&Rule> {
        self.generation.rules().rules().get(state.rule_index())
    }

    /// The level of a state, if its rule is a hierarchy.
    #[must_use]
    pub fn level(&self, state: &LimitState) -> Option<&str> {
        let meter = self.rule(state)?.meters.get(usize::from(state.meter))?;
        meter.level.as_deref()
    }

    /// Whether a limit that matches can only be decided with the claims of the request.
    #[must_use]
    pub fn waits_for_claims(&self) -> bool {
        let mut matched = self.scratch.matched.rules().iter();
        let rules = self.generation.rules().rules();
        matched.any(|index| rules.get(*index).is_some_and(|rule| rule.waits_for_claims))
    }

    /// The HTTP status of the denial. `None` if the request is admitted.
    #[must_use]
    #[inline]
    pub fn status(&self) -> Option<u16> {
        match self.is_admitted() {
            true => None,
            false => Some(self.denial_status()),
        }
    }

    #[inline(never)]
    fn denial_status(&self) -> u16 {
        match (self.builder().denied_by, self.builder().reason) {
            (Some(DenialSource::List(index)), _) => {
                let entry = self.generation.rules().denials().get(index);
                entry.map_or(403, |entry| entry.status)
            }
            (Some(DenialSource::Operator), _) => 403,
            (_, Some(DenialReason::Unreadable)) => 400,
            // The key may not have been too fast: its memory or the store is missing.
            (_, Some(DenialReason::Capacity)) | (Some(DenialSource::Engine), _) => 503,
            _ => self.denying_rule().map_or(429, |rule| rule.status),
        }
    }

    /// Why the request cannot be read, if that is the reason of the denial.
    #[must_use]
    pub fn unreadable(&self) -> Option<&Unreadable> {
        let is_reason = self.builder().reason == Some(DenialReason::Unreadable);
        // Without a reason in the request itself, more limits apply than fit.
        let reason = self.scratch.matched.unreadable();
        is_reason.then(|| reason.unwrap_or(&Unreadable::TooManyReadings))
    }

    /// The message of the denial, if the policy has one.
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

    /// The name of the rule that denies or delays.
    #[must_use]
    pub fn rule_name(&self) -> Option<&str> {
        self.denying_rule().map(|rule| &*rule.name)
    }

    /// What to cancel if a request that has to wait does not: see [`Outcome::Wait`]. It covers what the
    /// [`ticket`](Self::take_ticket) does not. `None` for a request that need not wait.
    pub fn take_wait_ticket(&mut self) -> Option<Ticket> {
        self.scratch.work.verdict.wait_ticket.take()
    }

    /// The ticket, to be settled with the response or cancelled: see [`Engine::respond`](crate::Engine::respond).
    /// `None` if nothing has to be settled, or if it was taken already.
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
            .field("binding", &self.builder().binding_index())
            .field("degraded", &self.builder().degraded)
            .field("limits", &self.limits())
            .finish_non_exhaustive()
    }
}
