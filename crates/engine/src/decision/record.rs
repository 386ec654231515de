//! What the store's replies mean for the verdict and for each limit's counters.
//!
//! Must not know: which step of a decision the replies belong to.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::Role;
use tollgate_store::{Note, Op, StoreReply};

use super::Work;
use crate::counters::{Event, LimitCounters};
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::verdict::{DenialReason, EnforcementMode, LimitState};

/// Notes where every limit of the plan stands. Blocks are noted while they last, distinct values never.
#[inline(always)]
pub(super) fn record(generation: &Generation, work: &mut Work, enforcement: EnforcementMode) {
    let Work { plan, verdict, .. } = work;
    for (planned, answer) in plan.answered() {
        verdict.degraded.overflow |= answer.note == Note::Overflow;
        verdict.degraded.store |= matches!(answer.note, Note::StandIn | Note::Waived);
        let is_quiet = match planned.role {
            Role::Main | Role::Local => false,
            Role::Block => answer.outcome.is_admitted(),
            _ => true,
        };
        if is_quiet || is_unknown(answer) {
            continue;
        }
        let outcome = peeked_outcome(planned, answer);
        let reason = match (outcome, planned.role, answer.note) {
            (Outcome::Allow, ..) => None,
            (_, Role::Block, _) => Some(DenialReason::Blocked),
            (_, _, Note::Overflow) => Some(DenialReason::Capacity),
            _ => Some(plan.quota_info(generation, planned).reason),
        };
        verdict.push(LimitState {
            rule: u32::try_from(planned.rule).unwrap_or(u32::MAX),
            meter: u16::try_from(planned.meter).unwrap_or(u16::MAX),
            key: planned.key,
            quota: planned.quota,
            role: planned.role,
            reason,
            enforcement,
            cost: planned.cost,
            outcome,
            status: answer.status,
        });
    }
}

/// What a limit says. A peek at a concurrency limit holds no place, so its answer only says how many are free.
pub(crate) fn peeked_outcome(planned: &PlannedCheck, answer: &StoreReply) -> Outcome {
    let is_peek = matches!(planned.op, Op::Acquire { weight: 0, .. });
    if is_peek && planned.cost > answer.status.limit {
        Outcome::Never
    } else if is_peek && planned.cost > answer.status.remaining {
        Outcome::Deny {
            retry_after: answer.status.reset_after.max(Nanos::from_nanos(1)),
        }
    } else {
        answer.outcome
    }
}

pub(super) fn count(generation: &Generation, rule: usize, event: Event) {
    if let Some((_, limit)) = generation.rule(rule) {
        limit.counters.count(event);
    }
}

/// Counts what each rule of the plan has said, once for all of its meters.
#[inline(always)]
pub(super) fn count_all(generation: &Generation, plan: &Plan, is_admitted: bool, denied: Event) {
    let count = |rule: usize, sum: &RuleSum| {
        if let Some(counters) = generation.counters_of(rule) {
            sum.count(counters, is_admitted, denied);
        }
    };
    let Some(first) = plan.planned().first() else {
        return;
    };
    // The meters of a rule stand one behind another.
    let (mut rule, mut sum) = (first.rule, RuleSum::default());
    for (planned, answer) in plan.answered() {
        if planned.rule != rule {
            count(rule, &sum);
            (rule, sum) = (planned.rule, RuleSum::default());
        }
        sum.add(planned, answer);
    }
    count(rule, &sum);
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
    fn add(&mut self, planned: &PlannedCheck, answer: &StoreReply) {
        if is_unknown(answer) {
            return;
        }
        self.denies |= !answer.outcome.is_admitted();
        self.waits |= matches!(answer.outcome, Outcome::Wait(_));
        self.overflowed |= answer.note == Note::Overflow;
        let status = &answer.status;
        self.is_near |= planned.is_limit() && status.remaining.saturating_mul(5) <= status.limit;
    }

    #[inline]
    fn count(&self, counters: &LimitCounters, is_admitted: bool, denied: Event) {
        if is_admitted {
            counters.count(Event::Allowed);
            if self.waits {
                counters.count(Event::Waited);
            }
            if self.is_near {
                counters.count(Event::NearLimit);
            }
        }
        if self.denies {
            counters.count(denied);
        }
        if self.overflowed {
            counters.count(Event::Overflow);
        }
    }
}

/// Whether it is not known where a limit stands.
const fn is_unknown(answer: &StoreReply) -> bool {
    matches!(answer.note, Note::Waived | Note::Unasked)
}
