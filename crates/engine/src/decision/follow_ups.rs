//! The charges that follow a denial: penalties of the limits that denied, limits that count denials, and charges of
//! candidates.
//!
//! A denied request costs nothing unless a limit has a penalty or counts denials. These charges come after the
//! decision. They can change how long a denied request has to wait, and the verdict reports that. If the store fails
//! here, the denial stays as it is. Must not know: how requests are admitted.

use tollgate_core::Outcome;
use tollgate_policy::model::{Count, Penalty};
use tollgate_policy::rules::MeterRole;
use tollgate_store::{Op, ReplyNote, StoreReply};

use super::{Decision, DecisionStep, Work};
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck, QuotaRef};
use crate::verdict::{DenialReason, LimitState};

/// The charges after a batch. The store gets them one by one.
#[derive(Debug)]
pub(super) struct FollowUps {
    queue: Vec<FollowUp>,
    next: usize,
    /// Whether the current charge is done and its limit is being peeked at, for the verdict.
    is_peeking: bool,
    reply_buffer: Vec<StoreReply>,
}

/// One charge that follows a denial.
#[derive(Clone, Copy, Debug)]
struct FollowUp {
    /// The index of the planned check to charge.
    position: usize,
    op: Op,
    update: VerdictUpdate,
    /// Another quota of the check's meter than the planned one.
    quota: Option<QuotaRef>,
}

/// How a charge changes the verdict.
#[derive(Clone, Copy, Debug)]
enum VerdictUpdate {
    Nothing,
    /// The limit's new status.
    Status,
    /// The key is now blocked under the limit at this index.
    Block {
        denied: usize,
    },
    /// Nothing; charged only if the block before it was new.
    Offence,
}

impl FollowUps {
    pub(super) const fn new() -> Self {
        Self {
            queue: Vec::new(),
            next: 0,
            is_peeking: false,
            reply_buffer: Vec::new(),
        }
    }

    /// Reserves capacity for this many checks, so that decisions do not allocate.
    pub(super) fn reserve(&mut self, checks: usize) {
        self.queue.reserve(checks);
        self.reply_buffer.reserve(1);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.next = 0;
        self.is_peeking = false;
    }

    pub(super) const fn has_next(&self) -> bool {
        self.next < self.queue.len()
    }

    pub(super) fn take_reply_buffer(&mut self) -> Vec<StoreReply> {
        std::mem::take(&mut self.reply_buffer)
    }

    /// The next check for the store, and its operation.
    pub(super) fn current(&self, plan: &Plan) -> Option<(PlannedCheck, Op)> {
        let follow_up = self.queue.get(self.next)?;
        let planned = plan.planned().get(follow_up.position)?;
        let op = match follow_up.update {
            _ if !self.is_peeking => follow_up.op,
            VerdictUpdate::Block { .. } => Op::Peek(1),
            VerdictUpdate::Nothing | VerdictUpdate::Offence | VerdictUpdate::Status => {
                Op::Peek(planned.cost)
            }
        };
        let mut charged = *planned;
        charged.quota = follow_up.quota.unwrap_or(planned.quota);
        Some((charged, op))
    }

    /// Queues the penalties of the limits that denied, also if waiting does not help: a client that asks for more than the burst would
    /// otherwise be free to go on.
    pub(super) fn queue_penalties(&mut self, plan: &Plan, generation: &Generation) {
        for (position, (planned, reply)) in plan.with_replies().enumerate() {
            let is_checked = reply.note != ReplyNote::NotChecked;
            if !planned.is_limit() || !is_checked || !is_denial(reply.outcome) {
                continue;
            }
            let Some((rule, _)) = generation.rule(planned.rule) else {
                continue;
            };
            match rule.penalty {
                // The denied request is charged like any other, up to the limit's overdraft.
                Penalty::Count if matches!(planned.op, Op::Spend(_)) => {
                    self.push(
                        position,
                        Op::ChargeAlways(planned.cost),
                        VerdictUpdate::Status,
                    );
                }
                Penalty::Block(_) => {
                    let is_block = |check: &PlannedCheck| {
                        check.rule == planned.rule && check.role == MeterRole::Block
                    };
                    if let Some(block) = plan.planned().iter().position(is_block) {
                        let report = VerdictUpdate::Block { denied: position };
                        self.push(block, Op::Spend(1), report);
                    }
                }
                Penalty::Escalate(_) => self.queue_escalation(plan, planned.rule, position),
                Penalty::Count | Penalty::None => {}
            }
        }
    }

    /// Queues the block whose length depends on the offences of the key, and one more offence if the key was not blocked before.
    fn queue_escalation(&mut self, plan: &Plan, rule: usize, denied: usize) {
        let find = |role: MeterRole| {
            let mut checks = plan.with_replies().enumerate();
            checks.find(|(_, (check, _))| check.rule == rule && check.role == role)
        };
        let (Some((block, _)), Some((offences, (_, reply)))) =
            (find(MeterRole::Block), find(MeterRole::Offences))
        else {
            return;
        };
        let status = &reply.status;
        let last = status.limit.saturating_sub(1);
        let step = status.limit.saturating_sub(status.remaining).min(last);
        self.queue.push(FollowUp {
            position: block,
            op: Op::Spend(1),
            update: VerdictUpdate::Block { denied },
            quota: u32::try_from(step).ok().map(QuotaRef::Listed),
        });
        self.push(offences, Op::ChargeAlways(1), VerdictUpdate::Offence);
    }

    /// Queues the charges of limits that count denials. An exhausted one is not charged: its own denials do not count
    /// against the client.
    pub(super) fn queue_denial_counts(&mut self, plan: &Plan, generation: &Generation) {
        for (position, planned) in plan.planned().iter().enumerate() {
            let counts_denials = generation
                .rule(planned.rule)
                .is_some_and(|(rule, _)| rule.count == Count::Denials);
            if counts_denials && planned.is_limit() {
                self.push(position, Op::Spend(planned.cost), VerdictUpdate::Nothing);
            }
        }
    }

    /// Queues what a denial costs under a candidate: by its own penalty, or because it counts denials.
    pub(super) fn queue_candidate_charges(
        &mut self,
        plan: &Plan,
        generation: &Generation,
        is_admitted: bool,
    ) {
        for (position, (planned, outcome)) in plan.outcomes().enumerate() {
            let Some((rule, _)) = generation.rule(planned.rule) else {
                continue;
            };
            let is_denied = outcome.is_some_and(is_denial);
            let is_spent = matches!(planned.op, Op::Spend(_));
            let op = if rule.penalty == Penalty::Count && is_denied && is_spent {
                Op::ChargeAlways(planned.cost)
            } else if rule.count == Count::Denials && !is_admitted {
                Op::Spend(planned.cost)
            } else {
                continue;
            };
            self.push(position, op, VerdictUpdate::Nothing);
        }
    }

    fn push(&mut self, position: usize, op: Op, report: VerdictUpdate) {
        self.queue.push(FollowUp {
            position,
            op,
            update: report,
            quota: None,
        });
    }

    /// Handles the store's reply to the current charge; `None`: the store did not answer.
    fn on_reply(&mut self, reply: Option<&StoreReply>, plan: &Plan, states: &mut [LimitState]) {
        let Some(follow_up) = self.queue.get(self.next) else {
            return;
        };
        let updates_verdict = !matches!(
            follow_up.update,
            VerdictUpdate::Nothing | VerdictUpdate::Offence
        );
        // A key that another request has blocked meanwhile, or a store that did not answer, adds no offence.
        let is_block = matches!(follow_up.update, VerdictUpdate::Block { .. }) && !self.is_peeking;
        if is_block && !reply.is_some_and(|reply| reply.outcome.is_admitted()) {
            let after = self.next.saturating_add(1);
            let is_offence = |next: &FollowUp| matches!(next.update, VerdictUpdate::Offence);
            if self.queue.get(after).is_some_and(is_offence) {
                self.queue.remove(after);
            }
        }
        let Some(follow_up) = self.queue.get(self.next) else {
            return;
        };
        if reply.is_some() && updates_verdict && !self.is_peeking {
            self.is_peeking = true;
            return;
        }
        if let Some(reply) = reply.filter(|_| self.is_peeking) {
            update_verdict(follow_up, reply, plan, states);
        }
        self.is_peeking = false;
        self.next = self.next.saturating_add(1);
        if !self.has_next() {
            self.clear();
        }
    }
}

const fn is_denial(outcome: Outcome) -> bool {
    matches!(outcome, Outcome::Deny { .. } | Outcome::Never)
}

/// Updates the verdict after a penalty.
fn update_verdict(
    follow_up: &FollowUp,
    reply: &StoreReply,
    plan: &Plan,
    states: &mut [LimitState],
) {
    let denied = match follow_up.update {
        VerdictUpdate::Block { denied } => denied,
        VerdictUpdate::Nothing | VerdictUpdate::Offence | VerdictUpdate::Status => {
            follow_up.position
        }
    };
    let denied = plan.planned().get(denied);
    let Some(state) = denied.and_then(|denied| state_of(states, denied)) else {
        return;
    };
    match (follow_up.update, reply.outcome, state.outcome) {
        (
            VerdictUpdate::Block { .. },
            Outcome::Deny {
                retry_after: blocked,
            },
            Outcome::Deny { retry_after },
        ) => {
            state.reason = Some(DenialReason::Blocked);
            state.outcome = Outcome::Deny {
                retry_after: blocked.max(retry_after),
            };
        }
        (VerdictUpdate::Status, outcome, _) => {
            state.status = reply.status;
            // The refill since the decision may have made room, but a denied request stays denied.
            if !outcome.is_admitted() {
                state.outcome = outcome;
            }
        }
        _ => {}
    }
}

fn state_of<'a>(
    states: &'a mut [LimitState],
    planned: &PlannedCheck,
) -> Option<&'a mut LimitState> {
    let is_of = |state: &&mut LimitState| {
        (state.rule_index(), state.meter_index()) == (planned.rule, planned.meter)
    };
    states.iter_mut().find(is_of)
}

impl Decision<'_> {
    /// Continues if no charge is queued.
    pub(super) fn skip_if_no_follow_up(&mut self) {
        if !self.scratch.work.follow_ups.has_next() {
            self.finish_follow_ups();
        }
    }

    /// Handles the store's reply, or its failure.
    pub(super) fn on_follow_up_reply(&mut self, mut replies: Vec<StoreReply>, is_answered: bool) {
        let Work {
            plan,
            verdict,
            follow_ups,
            shadow_states_start: shadow_states,
            ..
        } = &mut self.scratch.work;
        if let (Some(reply), Some((planned, _))) = (replies.first_mut(), follow_ups.current(plan)) {
            plan.translate(&self.generation, &planned, reply);
        }
        let from = match self.step {
            DecisionStep::ShadowFollowUp => *shadow_states,
            _ => 0,
        };
        let states = verdict.states_mut().get_mut(from..).unwrap_or_default();
        let reply = replies.first().filter(|_| is_answered);
        follow_ups.on_reply(reply, plan, states);
        follow_ups.reply_buffer = replies;
        self.skip_if_no_follow_up();
    }

    fn finish_follow_ups(&mut self) {
        match self.step {
            DecisionStep::EnforcedFollowUp => self.finish_enforced_follow_ups(),
            DecisionStep::CandidateFollowUp { is_charged } => self.finish_candidate(is_charged),
            DecisionStep::ShadowFollowUp => self.finish_shadow(),
            DecisionStep::Enforced
            | DecisionStep::Candidate
            | DecisionStep::Shadow
            | DecisionStep::Done => {}
        }
    }
}
