//! Records the store's replies in the verdict and in the limits' counters.
//!
//! Must not know: which step of a decision the replies belong to.

use tollgate_core::{Nanos, Outcome, QuotaStatus};
use tollgate_policy::rules::MeterRole;
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::Work;
use crate::counters::{LimitCounters, LimitEvent};
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::verdict::{DenialReason, EnforcementMode, LimitState};

/// Adds the state of every limit in the plan to the verdict. Blocks are added while they are active, distinct values
/// never. `observe` sees every check with its reply.
#[inline(always)]
pub(super) fn record(
    generation: &Generation,
    work: &mut Work,
    enforcement: EnforcementMode,
    mut observe: impl FnMut(&PlannedCheck, &StoreReply),
) {
    let Work { plan, verdict, .. } = work;
    for (planned, reply) in plan.with_replies() {
        observe(planned, reply);
        let is_plain = reply.note == ReplyNote::Plain;
        if !is_plain {
            verdict.degraded.overflow |= reply.note == ReplyNote::Overflow;
            verdict.degraded.store |=
                matches!(reply.note, ReplyNote::FallbackQuota | ReplyNote::FailOpen);
        }
        let is_unlisted = match planned.role {
            MeterRole::Main | MeterRole::Local | MeterRole::Share | MeterRole::Spillover => false,
            MeterRole::Block => reply.outcome.is_admitted(),
            _ => true,
        };
        if is_unlisted || (!is_plain && is_unknown(reply)) {
            continue;
        }
        let outcome = peeked_outcome(planned, reply);
        let reason = match outcome {
            Outcome::Allow => None,
            _ => Some(denial_reason(generation, plan, planned, reply)),
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
    if generation.has_second_quotas() {
        count_second_quotas(generation, plan);
        verdict.merge_shares();
    }
}

/// Why a check denies or delays the request.
fn denial_reason(
    generation: &Generation,
    plan: &Plan,
    planned: &PlannedCheck,
    reply: &StoreReply,
) -> DenialReason {
    match (planned.role, reply.note) {
        (_, ReplyNote::Overflow) => DenialReason::Capacity,
        (MeterRole::Block, _) => DenialReason::Blocked,
        _ => plan.quota_info(generation, planned).reason,
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

/// Counts a request that was admitted and charged to a spillover quota, or that borrowed.
#[cold]
fn count_second_quotas(generation: &Generation, plan: &Plan) {
    if !plan.is_admitted() {
        return;
    }
    for planned in plan.planned() {
        let is_second = match planned.role {
            MeterRole::Spillover => true,
            // The common bucket of a limit with shares: an owner's request only charges it.
            MeterRole::Main => generation
                .entry(planned.rule)
                .is_some_and(|entry| entry.has_shares),
            _ => false,
        };
        if is_second && matches!(planned.op, Op::Spend(_)) {
            count(generation, planned.rule, LimitEvent::SpilledOver);
        }
    }
}

/// Counts the result of each rule in the plan, once for all of its meters.
pub(super) fn count_rules(
    generation: &Generation,
    plan: &Plan,
    is_admitted: bool,
    denied: LimitEvent,
) {
    let mut counter = RuleCounter::new(generation, is_admitted, denied);
    for (planned, reply) in plan.with_replies() {
        counter.add(planned, reply);
    }
    counter.finish();
}

/// Counts the results of rules whose checks it is given in the order of the plan: the meters of a rule are adjacent.
pub(super) struct RuleCounter<'a> {
    generation: &'a Generation,
    is_admitted: bool,
    denied: LimitEvent,
    /// The rule of the last check; none has this index before the first.
    rule: usize,
    tally: RuleTally,
}

impl<'a> RuleCounter<'a> {
    #[inline]
    pub(super) const fn new(
        generation: &'a Generation,
        is_admitted: bool,
        denied: LimitEvent,
    ) -> Self {
        Self {
            generation,
            is_admitted,
            denied,
            rule: usize::MAX,
            tally: RuleTally::NOTHING,
        }
    }

    #[inline]
    pub(super) fn add(&mut self, planned: &PlannedCheck, reply: &StoreReply) {
        if planned.rule != self.rule {
            self.finish();
            (self.rule, self.tally) = (planned.rule, RuleTally::NOTHING);
        }
        self.tally.add(planned, reply);
    }

    /// Counts the last rule.
    #[inline]
    pub(super) fn finish(&self) {
        if let Some(counters) = self.generation.counters_at(self.rule) {
            self.tally.count(counters, self.is_admitted, self.denied);
        }
    }
}

/// The combined result of one rule's meters.
struct RuleTally {
    is_denied: bool,
    is_waiting: bool,
    is_near_limit: bool,
    is_overflow: bool,
}

impl RuleTally {
    const NOTHING: Self = Self {
        is_denied: false,
        is_waiting: false,
        is_near_limit: false,
        is_overflow: false,
    };

    #[inline]
    fn add(&mut self, planned: &PlannedCheck, reply: &StoreReply) {
        if reply.note != ReplyNote::Plain {
            if is_unknown(reply) {
                return;
            }
            self.is_overflow |= reply.note == ReplyNote::Overflow;
        }
        match reply.outcome {
            Outcome::Allow => {}
            Outcome::Wait(_) => self.is_waiting = true,
            Outcome::Deny { .. } | Outcome::Never => self.is_denied = true,
        }
        self.is_near_limit |= planned.is_limit() && is_near_limit(&reply.status);
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

/// Whether a limit has at most a fifth left.
#[inline]
pub(super) const fn is_near_limit(status: &QuotaStatus) -> bool {
    status.remaining.saturating_mul(5) <= status.limit
}

/// Whether the limit's state is unknown.
const fn is_unknown(reply: &StoreReply) -> bool {
    matches!(reply.note, ReplyNote::FailOpen | ReplyNote::NotChecked)
}
