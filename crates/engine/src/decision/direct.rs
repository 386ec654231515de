//! Decides by a direct plan: the checks are known before the request, so only their keys are made.
//!
//! The store gets the same batch as from a planned decision. If all limits admit at once, this module records the replies.
//! Otherwise it hands the batch over with its replies, so that denials, penalties and failures have one
//! implementation. Must not know: how requests are planned.

use arrayvec::ArrayVec;
use tollgate_core::Outcome;
use tollgate_core::compose::BatchOutcome;
use tollgate_policy::rules::{KeyOutcome, MeterRole};
use tollgate_store::{Op, QuotaCheck, ReplyNote, Store, StoreError, StoreKey, StoreReply};

use super::record::is_near_limit;
use super::{Decision, DecisionStep, Scratch};
use crate::check_options::{CheckMode, CheckScope};
use crate::counters::LimitEvent;
use crate::direct_plan::DirectCheck;
use crate::plan::{KeyRef, PlannedCheck};
use crate::steps::{StoreSteps as _, run_local};
use crate::verdict::{EnforcementMode, LimitState};

impl Decision<'_> {
    /// Decides on a store that answers at once. Returns false if the policy has no direct plan, or if the request needs more than
    /// it. Then the decision has not begun.
    #[inline(always)]
    pub(crate) fn decide_directly<S: Store>(&mut self, store: &S) -> bool {
        let options = &self.options;
        let is_charge = options.mode == CheckMode::Charge
            && options.scope == CheckScope::AllLimits
            && options.max_wait.is_none();
        if !is_charge || self.is_fleet || self.overrides.is_some() {
            return false;
        }
        match self.generation.direct_plan().len() {
            1 => self.decide_up_to::<1, S>(store),
            2 => self.decide_up_to::<2, S>(store),
            3..=4 => self.decide_up_to::<4, S>(store),
            5..=8 => self.decide_up_to::<8, S>(store),
            _ => false,
        }
    }

    /// Decides by a direct plan of at most `N` checks. Returns false as [`decide_directly`](Self::decide_directly) does.
    fn decide_up_to<const N: usize, S: Store>(&mut self, store: &S) -> bool {
        let rules = self.generation.rules();
        let checks = self.generation.direct_plan();
        if rules.may_be_preflight(self.request) || self.request.unreadable().is_some() {
            return false;
        }
        self.scratch.clear();
        let Scratch { matched, work } = &mut *self.scratch;
        matched.clear();
        let mut keys = ArrayVec::<KeyRef, N>::new();
        for check in checks {
            let write =
                |buffer: &mut _| rules.write_key(check.meter, self.request, matched, buffer);
            match work.plan.make_direct_key(check.key_spec, write) {
                (KeyOutcome::Complete, key) => keys.push(key),
                // An attribute is missing.
                _ => return false,
            }
        }
        let mut replies = [StoreReply::EMPTY; N];
        let Some(replies) = replies.get_mut(..checks.len()) else {
            return false;
        };
        let cost = |check: &DirectCheck| self.options.cost.unwrap_or(check.cost);
        let mut batch = ArrayVec::<QuotaCheck<'_>, N>::new();
        for (check, key) in checks.iter().zip(&keys) {
            let Ok(key) = StoreKey::new(work.plan.key(*key)) else {
                return false;
            };
            batch.push(QuotaCheck {
                key,
                limit: &check.limit,
                op: Op::Spend(cost(check)),
            });
        }
        let outcome = store.decide(&batch, replies);
        drop(batch);
        let is_plain = |reply: &StoreReply| reply.note == ReplyNote::Plain;
        if !matches!(&outcome, Ok(outcome) if outcome.outcome() == Outcome::Allow)
            || !replies.iter().all(is_plain)
        {
            self.hand_over(&keys, replies, outcome);
            run_local(self, store);
            return true;
        }
        for ((check, key), reply) in checks.iter().zip(&keys).zip(&*replies) {
            let status = reply.status;
            check.counters.count(LimitEvent::Allowed);
            if is_near_limit(&status) {
                check.counters.count(LimitEvent::NearLimit);
            }
            work.verdict.push(LimitState {
                rule: u32::try_from(check.meter.rule).unwrap_or(u32::MAX),
                meter: 0,
                key: *key,
                quota: check.quota,
                role: MeterRole::Main,
                reason: None,
                enforcement: EnforcementMode::Enforced,
                cost: cost(check),
                outcome: Outcome::Allow,
                status,
            });
        }
        true
    }

    /// Continues as if the batch had been planned.
    #[cold]
    fn hand_over(
        &mut self,
        keys: &[KeyRef],
        replies: &[StoreReply],
        outcome: Result<BatchOutcome, StoreError>,
    ) {
        let rules = self.generation.rules();
        rules.match_rules(self.request, &mut self.scratch.matched);
        for (check, key) in self.generation.direct_plan().iter().zip(keys) {
            let cost = self.options.cost.unwrap_or(check.cost);
            self.scratch.work.plan.push_direct(PlannedCheck {
                rule: check.meter.rule,
                meter: check.meter.meter,
                role: MeterRole::Main,
                op: Op::Spend(cost),
                cost,
                quota: check.quota,
                key: *key,
                slot_key: None,
            });
        }
        self.step = DecisionStep::Enforced;
        let mut buffer = self.take_replies();
        buffer.clear();
        buffer.extend_from_slice(replies);
        self.resume(buffer, outcome);
    }
}
