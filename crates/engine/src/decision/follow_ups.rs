//! What a denial leads to: penalties of the limits that denied, limits that count denials, and charges of candidates.
//!
//! A denied request costs nothing unless a limit says otherwise. All of it happens after the decision and cannot change it;
//! it changes how long the denied have to wait, and the verdict says that. A store that fails here leaves the denial as it
//! is. Must not know: how requests are admitted.

use tollgate_core::Outcome;
use tollgate_policy::model::{Count, Penalty};
use tollgate_policy::rules::Role;
use tollgate_store::{Op, StoreReply};

use super::{Decision, Step, Work};
use crate::generation::Generation;
use crate::plan::{Plan, PlannedCheck};
use crate::verdict::{DenialReason, LimitState};

/// What the store is asked after a batch, one at a time.
#[derive(Debug)]
pub(super) struct FollowUps {
    queue: Vec<FollowUp>,
    next: usize,
    /// Whether the current one is carried out, and the store is asked where its limit stands now.
    is_peeking: bool,
    room: Vec<StoreReply>,
}

/// One charge that follows from a denial.
#[derive(Clone, Copy, Debug)]
struct FollowUp {
    /// The planned check that it charges.
    position: usize,
    op: Op,
    report: Report,
}

/// What the verdict says of a charge that was carried out.
#[derive(Clone, Copy, Debug)]
enum Report {
    Nothing,
    /// Where the limit stands now.
    Debt,
    /// That the key is blocked under the limit at this position, and for how long.
    Block {
        denied: usize,
    },
}

impl FollowUps {
    pub(super) const fn new() -> Self {
        Self {
            queue: Vec::new(),
            next: 0,
            is_peeking: false,
            room: Vec::new(),
        }
    }

    /// Makes room for the penalties of so many checks, so that no decision has to.
    pub(super) fn reserve(&mut self, checks: usize) {
        self.queue.reserve(checks);
        self.room.reserve(1);
    }

    pub(super) fn clear(&mut self) {
        self.queue.clear();
        self.next = 0;
        self.is_peeking = false;
    }

    pub(super) const fn has_next(&self) -> bool {
        self.next < self.queue.len()
    }

    pub(super) fn take_room(&mut self) -> Vec<StoreReply> {
        std::mem::take(&mut self.room)
    }

    /// The check that the store is asked about next, and what it is asked.
    pub(super) fn current<'p>(&self, plan: &'p Plan) -> Option<(&'p PlannedCheck, Op)> {
        let one = self.queue.get(self.next)?;
        let planned = plan.planned().get(one.position)?;
        let op = match one.report {
            _ if !self.is_peeking => one.op,
            Report::Block { .. } => Op::Peek(1),
            Report::Nothing | Report::Debt => Op::Peek(planned.cost),
        };
        Some((planned, op))
    }

    /// The penalties of the limits that denied.
    pub(super) fn punish(&mut self, plan: &Plan, generation: &Generation) {
        for (position, (planned, answer)) in plan.answered().enumerate() {
            if !planned.is_limit() || !matches!(answer.outcome, Outcome::Deny { .. }) {
                continue;
            }
            let Some((rule, _)) = generation.rule(planned.rule) else {
                continue;
            };
            match rule.penalty {
                // The denied request is charged like any other, as far as the limit lets debt grow.
                Penalty::Count if matches!(planned.op, Op::Spend(_)) => {
                    self.push(position, Op::ChargeAlways(planned.cost), Report::Debt);
                }
                Penalty::Block(_) => {
                    let is_block =
                        |one: &PlannedCheck| one.rule == planned.rule && one.role == Role::Block;
                    if let Some(block) = plan.planned().iter().position(is_block) {
                        let report = Report::Block { denied: position };
                        self.push(block, Op::Spend(1), report);
                    }
                }
                Penalty::Count | Penalty::None => {}
            }
        }
    }

    /// Charges of the limits that count denials. One that has nothing left is not charged: its own refusals are not
    /// held against the refused on top.
    pub(super) fn count_denials(&mut self, plan: &Plan, generation: &Generation) {
        for (position, planned) in plan.planned().iter().enumerate() {
            let counts = generation
                .rule(planned.rule)
                .is_some_and(|(rule, _)| rule.count == Count::Denials);
            if counts && planned.is_limit() {
                self.push(position, Op::Spend(planned.cost), Report::Nothing);
            }
        }
    }

    /// What a denial costs under a candidate: by its own penalty, or because it counts denials.
    pub(super) fn charge_candidate(&mut self, plan: &Plan, generation: &Generation, goes_on: bool) {
        for (position, (planned, outcome)) in plan.outcomes().enumerate() {
            let Some((rule, _)) = generation.rule(planned.rule) else {
                continue;
            };
            let is_denied = matches!(outcome, Some(Outcome::Deny { .. }));
            let is_spent = matches!(planned.op, Op::Spend(_));
            let op = if rule.penalty == Penalty::Count && is_denied && is_spent {
                Op::ChargeAlways(planned.cost)
            } else if rule.count == Count::Denials && !goes_on {
                Op::Spend(planned.cost)
            } else {
                continue;
            };
            self.push(position, op, Report::Nothing);
        }
    }

    fn push(&mut self, position: usize, op: Op, report: Report) {
        self.queue.push(FollowUp {
            position,
            op,
            report,
        });
    }

    /// Takes the store's reply to the current one, or that there is none.
    fn answered(&mut self, reply: Option<&StoreReply>, plan: &Plan, states: &mut [LimitState]) {
        let Some(one) = self.queue.get(self.next) else {
            return;
        };
        let wants_report = !matches!(one.report, Report::Nothing);
        if reply.is_some() && wants_report && !self.is_peeking {
            self.is_peeking = true;
            return;
        }
        if let Some(reply) = reply.filter(|_| self.is_peeking) {
            report(one, reply, plan, states);
        }
        self.is_peeking = false;
        self.next = self.next.saturating_add(1);
        if !self.has_next() {
            self.clear();
        }
    }
}

/// Says in the verdict what a penalty has changed.
fn report(one: &FollowUp, reply: &StoreReply, plan: &Plan, states: &mut [LimitState]) {
    let denied = match one.report {
        Report::Block { denied } => denied,
        Report::Nothing | Report::Debt => one.position,
    };
    let denied = plan.planned().get(denied);
    let Some(state) = denied.and_then(|denied| state_of(states, denied)) else {
        return;
    };
    match (one.report, reply.outcome, state.outcome) {
        (
            Report::Block { .. },
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
        (Report::Debt, outcome, _) => {
            state.status = reply.status;
            // Refill since the decision may have made room; a denied request stays denied.
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
    /// Goes on at once where nothing follows.
    pub(super) fn skip_if_no_follow_up(&mut self) {
        if !self.scratch.work.follow_ups.has_next() {
            self.followed_up();
        }
    }

    /// The store has answered, or has not.
    pub(super) fn follow_up_answered(&mut self, mut replies: Vec<StoreReply>, is_answered: bool) {
        let Work {
            plan,
            verdict,
            follow_ups,
            shadow_states,
            ..
        } = &mut self.scratch.work;
        if let (Some(reply), Some((planned, _))) = (replies.first_mut(), follow_ups.current(plan)) {
            plan.translate(&self.generation, planned, reply);
        }
        let from = match self.step {
            Step::ShadowFollowUp => *shadow_states,
            _ => 0,
        };
        let states = verdict.states_mut().get_mut(from..).unwrap_or_default();
        let reply = replies.first().filter(|_| is_answered);
        follow_ups.answered(reply, plan, states);
        follow_ups.room = replies;
        self.skip_if_no_follow_up();
    }

    fn followed_up(&mut self) {
        match self.step {
            Step::EnforcedFollowUp => self.enforced_followed_up(),
            Step::CandidateFollowUp { is_charged } => self.candidate_followed_up(is_charged),
            Step::ShadowFollowUp => self.finish_shadow(),
            Step::Enforced | Step::Candidate | Step::Shadow | Step::Done => {}
        }
    }
}
