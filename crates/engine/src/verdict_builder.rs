//! Builds a verdict step by step.
//!
//! Must not know: policies, how anything is decided.

use arrayvec::ArrayVec;
use tollgate_core::{Outcome, compose};
use tollgate_policy::rules::MeterRole;
use tollgate_store::contract::MAX_CHECKS;

use crate::ticket::Ticket;
use crate::verdict::{Degradation, DenialReason, EnforcementMode, LimitState};

/// The verdict so far.
#[derive(Debug)]
pub(crate) struct VerdictBuilder {
    pub(crate) outcome: Outcome,
    pub(crate) reason: Option<DenialReason>,
    /// The index of the state that decided. `None`: see [`binding_index`](Self::binding_index).
    binding: Option<usize>,
    /// What denied the request before the store was asked.
    pub(crate) denied_by: Option<DenialSource>,
    pub(crate) degraded: Degradation,
    pub(crate) ticket: Option<Ticket>,
    /// What to cancel if the request does not wait until its turn.
    pub(crate) wait_ticket: Option<Ticket>,
    /// Not initialised until used: clearing it for every request took as long as the rest of a decision.
    states: ArrayVec<LimitState, MAX_CHECKS>,
}

/// What denied a request before the store was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenialSource {
    /// An entry of the `deny` list.
    List(usize),
    /// A rule whose key cannot be built, or whose store does not answer.
    Rule(usize),
    /// A block of the address by an operator.
    Operator,
    /// The engine itself.
    Engine,
}

impl VerdictBuilder {
    /// An admitted request without limits.
    pub(crate) const fn new() -> Self {
        Self {
            outcome: Outcome::Allow,
            reason: None,
            binding: None,
            denied_by: None,
            degraded: Degradation {
                overflow: false,
                store: false,
            },
            ticket: None,
            wait_ticket: None,
            states: ArrayVec::new_const(),
        }
    }

    /// Clears the previous request.
    pub(crate) fn clear(&mut self) {
        self.outcome = Outcome::Allow;
        self.reason = None;
        self.binding = None;
        self.denied_by = None;
        self.degraded = Degradation::default();
        self.drop_tickets();
        self.states.clear();
    }

    /// Drops tickets that nobody took. They would keep their generation alive.
    #[inline]
    pub(crate) fn drop_tickets(&mut self) {
        if self.ticket.is_some() || self.wait_ticket.is_some() {
            (self.ticket, self.wait_ticket) = (None, None);
        }
    }

    pub(crate) const fn is_admitted(&self) -> bool {
        self.outcome.is_admitted()
    }

    pub(crate) fn states(&self) -> &[LimitState] {
        &self.states
    }

    #[inline]
    pub(crate) fn push(&mut self, state: LimitState) {
        // Shadow limits beyond the capacity are counted, not listed.
        if !self.states.is_full() {
            self.states.push(state);
        }
    }

    /// Keeps one state of each limit with shares: a share that denies, or else of the share and the common bucket the one that has
    /// more left. So `remaining` is what the caller could send at once, from its share and then borrowed.
    #[cold]
    pub(crate) fn merge_shares(&mut self) {
        let mut index = 0;
        while let Some(share) = self.states.get(index).copied() {
            let is_common = |state: &LimitState| {
                state.role == MeterRole::Main
                    && (state.rule, state.enforcement) == (share.rule, share.enforcement)
            };
            let common = self.states.iter().position(is_common);
            let common = common.filter(|_| share.role == MeterRole::Share);
            match common.and_then(|at| Some((at, self.states.get(at)?.status.remaining))) {
                Some((at, left)) => {
                    let is_denied = !share.outcome.is_admitted();
                    let keeps_share = is_denied || share.status.remaining >= left;
                    // The next state moves to this index.
                    self.states.remove(if keeps_share { at } else { index });
                }
                None => index = index.saturating_add(1),
            }
        }
    }

    pub(crate) fn states_mut(&mut self) -> &mut [LimitState] {
        &mut self.states
    }

    pub(crate) const fn deny(
        &mut self,
        source: DenialSource,
        reason: DenialReason,
        outcome: Outcome,
    ) {
        self.denied_by = Some(source);
        self.reason = Some(reason);
        self.outcome = outcome;
    }

    /// Whether the request is denied already.
    pub(crate) const fn is_denied_early(&self) -> bool {
        self.denied_by.is_some()
    }

    /// Computes the outcome from the states of the enforced limits.
    #[inline]
    pub(crate) fn conclude(&mut self) {
        // Most requests have one limit.
        if let [only] = self.states.as_slice() {
            (self.outcome, self.reason, self.binding) = (only.outcome, only.reason, Some(0));
            return;
        }
        self.conclude_from_many();
    }

    fn conclude_from_many(&mut self) {
        let all: compose::BatchOutcome = self.enforced().map(|state| state.outcome).collect();
        let binding = all.binding();
        let reason = binding.and_then(|index| self.states().get(index)?.reason);
        (self.outcome, self.reason, self.binding) = (all.outcome(), reason, binding);
    }

    /// The index of the binding state. Of limits that all admit it is the tightest, which is computed here, because few
    /// callers need it.
    pub(crate) fn binding_index(&self) -> Option<usize> {
        self.binding.or_else(|| {
            let tightest = self.enforced().enumerate().reduce(|best, next| {
                if next.1.status.is_closer_to_limit_than(&best.1.status) {
                    next
                } else {
                    best
                }
            });
            tightest.map(|(index, _)| index)
        })
    }

    /// The states of enforced limits. They come first, so their indexes are valid for all states.
    fn enforced(&self) -> impl Iterator<Item = &LimitState> {
        let states = self.states.iter();
        states.take_while(|state| state.enforcement == EnforcementMode::Enforced)
    }
}
