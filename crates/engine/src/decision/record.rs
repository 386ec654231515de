//! Records the store's replies in the verdict and in the limits' counters.
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

/// Adds the state of every limit in the plan to the verdict. Blocks are added while they are active, distinct values
/// never.
#[inline(always)]
pub(super) fn record(generation: &Generation, work: &mut Work, enforcement: EnforcementMode) {
    let Work { plan, verdict, .. } = work;
    for (planned, reply) in plan.with_replies() {
        verdict.degraded.overflow |= reply.note == ReplyNote::Overflow;
        verdict.degraded.store |=
            matches!(reply.note, ReplyNote::FallbackQuota | ReplyNote::FailOpen);
        let is_unlisted = match planned.role {
            MeterRole::Main | MeterRole::Local => false,
            MeterRole::Spillover => {
                count_spillover(generation, plan, planned);
                false
            }
            MeterRole::Block => reply.outcome.is_admitted(),
            _ => true,
        };
        if is_unlisted || is_unknown(reply) {
            continue;
        }
        let outcome = peeked_outcome(planned, reply);
        let reason = match (outcome, planned.role, reply.note) {
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
            status: reply.status,
        });
    }
}

/// The outcome of one check. A peek at a concurrency limit acquires nothing, so its reply only tells how many permits
/// are free.
pub(crate) fn peeked_outcome(planned: &PlannedCheck, reply: &StoreReply) -> Outcome {
    let is_peek = matches!(planned.op, Op::Acquire { weight: 0, .. });
    if is_peek && planned.cost > reply.status.limit {
        Outcome::Never
    } else if is_peek && planned.cost > reply.status.remaining {
        Outcome::Deny {
            retry_after: reply.status.reset_after.max(Nanos::from_nanos(1)),
        }
    } else {
        reply.outcome
    }
}

pub(super) fn count(generation: &Generation, rule: usize, event: LimitEvent) {
    if let Some((_, limit)) = generation.rule(rule) {
        limit.counters.count(event);
    }
}

/// Counts a request that was admitted and charged to a spillover quota.
#[cold]
fn count_spillover(generation: &Generation, plan: &Plan, planned: &PlannedCheck) {
    if matches!(planned.op, Op::Spend(_)) && plan.is_admitted() {
        count(generation, planned.rule, LimitEvent::SpilledOver);
    }
}

/// Counts the result of each rule in the plan, once for all of its meters.
#[inline(always)]
pub(super) fn count_rules(
    generation: &Generation,
    plan: &Plan,
    is_admitted: bool,
    denied: LimitEvent,
) {
    let count = |rule: usize, tally: &RuleTally| {
        if let Some(counters) = generation.counters_at(rule) {
            tally.count(counters, is_admitted, denied);
        }
    };
    let Some(first) = plan.planned().first() else {
        return;
    };
    // The meters of a rule are adjacent.
    let (mut rule, mut tally) = (first.rule, RuleTally::default());
    for (planned, reply) in plan.with_replies() {
        if planned.rule != rule {
            count(rule, &tally);
            (rule, tally) = (planned.rule, RuleTally::default());
        }
        tally.add(planned, reply);
    }
    count(rule, &tally);
}

/// The combined result of one rule's meters.
#[derive(Default)]
struct RuleTally {
    is_denied: bool,
    is_waiting: bool,
    is_near_limit: bool,
    is_overflow: bool,
}

impl RuleTally {
    fn add(&mut self, planned: &PlannedCheck, reply: &StoreReply) {
        if is_unknown(reply) {
            return;
        }
        self.is_denied |= !reply.outcome.is_admitted();
        self.is_waiting |= matches!(reply.outcome, Outcome::Wait(_));
        self.is_overflow |= reply.note == ReplyNote::Overflow;
        let status = &reply.status;
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

/// Whether the limit's state is unknown.
const fn is_unknown(reply: &StoreReply) -> bool {
    matches!(reply.note, ReplyNote::FailOpen | ReplyNote::NotChecked)
}
