//! What the store's replies mean for the verdict and for each limit's counters.
//!
//! Must not know: which step of a decision the replies belong to.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::rules::MeterRole;
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::Work;
use crate::counters::{LimitCounters, LimitEvent};
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::verdict::{DenialReason, EnforcementMode, LimitState};

/// Notes where every limit of the plan stands. Blocks are noted while they last, distinct values never.
#[inline(always)]
pub(super) fn record(generation: &Generation, work: &mut Work, enforcement: EnforcementMode) {
    let Work { plan, verdict, .. } = work;
    for (planned, answer) in plan.with_replies() {
        verdict.degraded.overflow |= answer.note == ReplyNote::Overflow;
        verdict.degraded.store |=
            matches!(answer.note, ReplyNote::FallbackQuota | ReplyNote::FailOpen);
        let is_quiet = match planned.role {
            MeterRole::Main | MeterRole::Local => false,
            MeterRole::Block => answer.outcome.is_admitted(),
            _ => true,
        };
        if is_quiet || is_unknown(answer) {
            continue;
        }
        let outcome = peeked_outcome(planned, answer);
        let reason = match (outcome, planned.role, answer.note) {
            (Outcome::Allow, ..) => None,
            (_, _, ReplyNote::Overflow) => Some(DenialReason::Capacity),
            (_, MeterRole::Block, _) => Some(DenialReason::Blocked),
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

pub(super) fn count(generation: &Generation, rule: usize, event: LimitEvent) {
    if let Some((_, limit)) = generation.rule(rule) {
        limit.counters.count(event);
    }
}

/// Counts what each rule of the plan has said, once for all of its meters.
#[inline(always)]
pub(super) fn count_rules(
    generation: &Generation,
    plan: &Plan,
    is_admitted: bool,
    denied: LimitEvent,
) {
    let count = |rule: usize, sum: &RuleTally| {
        if let Some(counters) = generation.counters_at(rule) {
            sum.count(counters, is_admitted, denied);
        }
    };
    let Some(first) = plan.planned().first() else {
        return;
    };
    // The meters of a rule stand one behind another.
    let (mut rule, mut sum) = (first.rule, RuleTally::default());
    for (planned, answer) in plan.with_replies() {
        if planned.rule != rule {
            count(rule, &sum);
            (rule, sum) = (planned.rule, RuleTally::default());
        }
        sum.add(planned, answer);
    }
    count(rule, &sum);
}

/// What the meters of one rule said together.
#[derive(Default)]
struct RuleTally {
    is_denied: bool,
    is_waiting: bool,
    is_near_limit: bool,
    is_overflow: bool,
}

impl RuleTally {
    fn add(&mut self, planned: &PlannedCheck, answer: &StoreReply) {
        if is_unknown(answer) {
            return;
        }
        self.is_denied |= !answer.outcome.is_admitted();
        self.is_waiting |= matches!(answer.outcome, Outcome::Wait(_));
        self.is_overflow |= answer.note == ReplyNote::Overflow;
        let status = &answer.status;
        self.is_near_limit |=
            planned.is_limit() && status.remaining.saturating_mul(5) <= status.limit;
    }

    #[inline]
    fn count(&self, counters: &LimitCounters, is_admitted: bool, denied: LimitEvent) {
        if is_admitted {
            counters.count(LimitEvent::Allowed);
            if self.is_waiting {
                counters.count(LimitEvent::Waited);
            }
            if self.is_near_limit {
                counters.count(LimitEvent::NearLimit);
            }
        }
        if self.is_denied {
            counters.count(denied);
        }
        if self.is_overflow {
            counters.count(LimitEvent::Overflow);
        }
    }
}

/// Whether it is not known where a limit stands.
const fn is_unknown(answer: &StoreReply) -> bool {
    matches!(answer.note, ReplyNote::FailOpen | ReplyNote::NotChecked)
}
