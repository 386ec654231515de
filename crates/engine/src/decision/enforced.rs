//! The first steps of a decision: denials that need no store, then one batch for all enforced limits.
//!
//! Must not know: how checks are planned, what shadow limits and candidates do.

use tollgate_core::compose::BatchOutcome;
use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Mode, OnStoreFailure};
use tollgate_policy::rules::ListVerdict;
use tollgate_store::{StoreError, StoreReply};

use super::record::{RuleCounter, count, count_rules, record};
use super::{Decision, DecisionStep, Work};
use crate::counters::LimitEvent;
use crate::effective_mode::effective_modes;
use crate::plan::{AddedRule, PlanContext, PlannedCheck};
use crate::verdict::{DenialReason, EnforcementMode};
use crate::verdict_builder::{DenialSource, VerdictBuilder};

/// `Retry-After` of a limit with `on_store_failure: closed` while its store does not answer.
const STORE_RETRY_AFTER: Nanos = Nanos::SECOND;

impl Decision<'_> {
    /// Denies or exempts the request at once, or plans the batch of all enforced limits.
    pub(super) fn start(&mut self) {
        if let Some(snapshot) = self.overrides.as_ref().and_then(|guard| guard.as_deref()) {
            if snapshot.is_off() {
                return;
            }
            let address = self.request.ip();
            let blocked = address.and_then(|address| snapshot.addresses.find(address, self.now));
            if let Some(until) = blocked {
                let outcome = until.outcome(self.now);
                let verdict = &mut self.scratch.work.verdict;
                return verdict.deny(DenialSource::Operator, DenialReason::Blocked, outcome);
            }
        }
        let rules = self.generation.rules();
        let scratch = &mut *self.scratch;
        rules.match_rules(self.request, &mut scratch.matched);
        if let Some(reason) = self.request.unreadable() {
            scratch.matched.set_unreadable(reason);
        }
        let verdict = &mut scratch.work.verdict;
        match scratch.matched.list_verdict() {
            ListVerdict::Denied(index) => {
                return verdict.deny(
                    DenialSource::List(index),
                    DenialReason::Listed,
                    Outcome::Never,
                );
            }
            // Before the exemption: a URI that servers read differently may be written so as to look exempt. A policy that
            // enforces nothing refuses nothing.
            _ if scratch.matched.unreadable().is_some() && rules.is_enforcing() => {
                return verdict.deny(
                    DenialSource::Engine,
                    DenialReason::Unreadable,
                    Outcome::Never,
                );
            }
            ListVerdict::Exempt => return,
            ListVerdict::Limits => {}
        }
        let (context, work) = self.split();
        effective_modes(&context, &mut work.plan, &mut work.modes);
        plan_enforced(&context, work);
        if work.verdict.is_denied_early() {
            if self.charges() {
                let Work {
                    plan, follow_ups, ..
                } = &mut self.scratch.work;
                follow_ups.queue_denial_counts(plan, &self.generation);
            }
            self.step = DecisionStep::EnforcedFollowUp;
            self.skip_if_no_follow_up();
        } else if work.plan.planned().is_empty() {
            if self.options.is_before_claims() {
                return;
            }
            self.finish_enforced(true);
        } else {
            self.step = DecisionStep::Enforced;
        }
    }

    /// Handles the replies to the batch of all enforced limits.
    #[inline]
    pub(super) fn on_enforced_replies(&mut self, outcome: Result<&BatchOutcome, &StoreError>) {
        let charges = self.charges();
        let is_answered = match outcome {
            // Nothing is charged yet. Without the store, the check with claims decides what to do.
            Ok(outcome) if self.options.is_before_claims() && outcome.is_admitted() => {
                self.step = DecisionStep::Done;
                return;
            }
            Err(_) if self.options.is_before_claims() => {
                self.step = DecisionStep::Done;
                return;
            }
            Err(_) => {
                decide_without_store(&self.generation, charges, &mut self.scratch.work);
                false
            }
            Ok(outcome) if !outcome.is_admitted() && self.retry_denied() => return,
            Ok(outcome) => {
                let generation = &self.generation;
                let work = &mut self.scratch.work;
                // Counted in the same pass, if all limits admit; otherwise after the penalties.
                let is_counted = charges && outcome.is_admitted();
                if is_counted {
                    let mut counter = RuleCounter::new(generation, true, LimitEvent::Denied);
                    let count =
                        |check: &PlannedCheck, reply: &StoreReply| counter.add(check, reply);
                    record(generation, work, EnforcementMode::Enforced, count);
                    counter.finish();
                } else {
                    record(generation, work, EnforcementMode::Enforced, |_, _| ());
                }
                work.verdict.conclude();
                if charges && !work.verdict.is_admitted() {
                    return self.queue_enforced_follow_ups();
                }
                if charges && !is_counted {
                    count_rules(generation, &work.plan, true, LimitEvent::Denied);
                }
                true
            }
        };
        self.finish_enforced(is_answered);
    }

    /// The request is denied: continues with penalties and limits that count denials.
    fn queue_enforced_follow_ups(&mut self) {
        let Work {
            plan, follow_ups, ..
        } = &mut self.scratch.work;
        follow_ups.queue_penalties(plan, &self.generation);
        follow_ups.queue_denial_counts(plan, &self.generation);
        self.step = DecisionStep::EnforcedFollowUp;
        self.skip_if_no_follow_up();
    }

    /// Ends the penalties of the enforced limits.
    pub(super) fn finish_enforced_follow_ups(&mut self) {
        let work = &mut self.scratch.work;
        if !work.verdict.is_denied_early() {
            // A penalty changes how long a denied request has to wait, never whether it is denied.
            work.verdict.conclude();
            count_rules(&self.generation, &work.plan, false, LimitEvent::Denied);
        }
        self.finish_enforced(true);
    }

    /// Continues with candidates and shadow limits.
    #[inline]
    fn finish_enforced(&mut self, is_answered: bool) {
        if self.charges() && is_answered {
            if self.scratch.work.verdict.is_admitted() {
                self.collect_ticket();
            }
            if self.generation.has_candidates() {
                return self.begin_candidates();
            }
        }
        self.next_shadow();
    }
}

/// Plans one batch for all enforced limits. Limits that deny without a store deny here.
fn plan_enforced(context: &PlanContext<'_>, work: &mut Work) {
    let Work {
        plan,
        verdict,
        modes,
        ..
    } = work;
    for (position, index) in context.matched.rules().iter().enumerate() {
        // Without modes, all limits are enforced.
        if modes
            .get(position)
            .is_some_and(|mode| *mode != Mode::Enforce)
        {
            continue;
        }
        if context.options.is_before_claims() && has_to_wait(context, *index) {
            continue;
        }
        let (reason, outcome) = match plan.add_rule(context, *index, EnforcementMode::Enforced) {
            AddedRule::Planned => continue,
            AddedRule::TooMany => {
                deny_too_many(context, verdict);
                continue;
            }
            AddedRule::NoKey => (DenialReason::MissingKey, Outcome::Never),
            AddedRule::Blocked(until) => (DenialReason::Blocked, until.outcome(context.now)),
        };
        if context.options.mode.charges() {
            count(context.generation, *index, LimitEvent::Denied);
        }
        if !verdict.is_denied_early() {
            verdict.deny(DenialSource::Rule(*index), reason, outcome);
        }
    }
}

/// Whether a limit is not decided before the claims of the request are known: because it reads them, or because a permit cannot be
/// asked for without being acquired.
fn has_to_wait(context: &PlanContext<'_>, index: usize) -> bool {
    let rule = context.generation.rule(index);
    rule.is_none_or(|(rule, entry)| {
        rule.waits_for_claims || entry.meters.iter().any(|meter| meter.is_concurrency)
    })
}

/// More limits apply than fit. Policies with which a request could reach that many are refused, so this request has a path
/// with several readings, and limits that exclude each other apply together.
fn deny_too_many(context: &PlanContext<'_>, verdict: &mut VerdictBuilder) {
    let reason = match context.matched.is_ambiguous() {
        true => DenialReason::Unreadable,
        false => DenialReason::Capacity,
    };
    if !verdict.is_denied_early() {
        verdict.deny(DenialSource::Engine, reason, Outcome::Never);
    }
}

/// The store did not answer and no fallback quota decided: each limit's `on_store_failure` decides.
#[cold]
fn decide_without_store(generation: &crate::Generation, charges: bool, work: &mut Work) {
    let Work { plan, verdict, .. } = work;
    verdict.degraded.store = true;
    let mut last = None;
    for planned in plan.planned() {
        if last.replace(planned.rule) == Some(planned.rule) {
            continue;
        }
        if charges {
            count(generation, planned.rule, LimitEvent::Error);
        }
        let rule = generation.rule(planned.rule).map(|(rule, _)| rule);
        let is_closed = rule.is_some_and(|rule| rule.on_store_failure == OnStoreFailure::Closed);
        if is_closed && !verdict.is_denied_early() {
            let outcome = Outcome::Deny {
                retry_after: STORE_RETRY_AFTER,
            };
            verdict.deny(
                DenialSource::Rule(planned.rule),
                DenialReason::Capacity,
                outcome,
            );
        }
    }
}
