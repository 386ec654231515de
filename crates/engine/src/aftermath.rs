//! What a denial leads to: penalties of the limits that denied, and limits that count denials.
//!
//! Refused is free unless a limit says otherwise. Whatever is done here is done after the decision, so it cannot change
//! it; it changes how long the denied have to wait, and that is what they are told. A store that fails here leaves the
//! denial as it is. Must not know: how requests are admitted.

use tollgate_core::Outcome;
use tollgate_policy::model::{Count, Penalty};
use tollgate_policy::rules::Role;
use tollgate_store::Op;

use crate::asks::Asks;
use crate::generation::Generation;
use crate::plan::{Plan, Planned};
use crate::verdict::{LimitState, Reason};

/// Carries out the penalties of the limits that denied, and corrects their states by what the denied must wait for now.
pub(crate) async fn punish<S: Asks>(
    plan: &Plan,
    generation: &Generation,
    store: &S,
    states: &mut [LimitState],
) {
    for (position, (planned, answer)) in plan.answered().enumerate() {
        let is_limit = matches!(planned.role, Role::Main | Role::Local);
        if !is_limit || !matches!(answer.outcome, Outcome::Deny { .. }) {
            continue;
        }
        let penalty = generation.rule(planned.rule).map(|(rule, _)| rule.penalty);
        match penalty {
            Some(Penalty::Count) => {
                charge(plan, generation, store, position, states).await;
            }
            Some(Penalty::Block(_)) => {
                block(plan, generation, store, planned, position, states).await;
            }
            Some(Penalty::None) | None => {}
        }
    }
}

/// Charges the denied request like any other, as far as the limit lets debt grow.
async fn charge<S: Asks>(
    plan: &Plan,
    generation: &Generation,
    store: &S,
    position: usize,
    states: &mut [LimitState],
) {
    let Some(planned) = plan.planned().get(position) else {
        return;
    };
    let ask = |op| plan.ask_alone(generation, store, position, op);
    if matches!(planned.op, Op::Spend(_))
        && let Some(Ok(_)) = ask(Op::ChargeAlways(planned.cost)).await
        && let Some(Ok(answer)) = ask(Op::Peek(planned.cost)).await
        && let Some(state) = state_of(states, planned)
    {
        state.status = answer.status;
        // Refill since the decision may have made room; who was denied stays denied.
        if !answer.outcome.is_admitted() {
            state.outcome = answer.outcome;
        }
    }
}

/// Blocks the key of the rule that denied.
async fn block<S: Asks>(
    plan: &Plan,
    generation: &Generation,
    store: &S,
    denied: &Planned,
    position: usize,
    states: &mut [LimitState],
) {
    let is_block = |one: &Planned| one.rule == denied.rule && one.role == Role::Block;
    let Some(at) = plan.planned().iter().position(is_block) else {
        return;
    };
    let Some(Ok(_)) = plan.ask_alone(generation, store, at, Op::Spend(1)).await else {
        return;
    };
    let Some(Ok(answer)) = plan.ask_alone(generation, store, at, Op::Peek(1)).await else {
        return;
    };
    let denied = plan.planned().get(position);
    if let Some(state) = denied.and_then(|denied| state_of(states, denied))
        && let (
            Outcome::Deny {
                retry_after: blocked,
            },
            Outcome::Deny { retry_after },
        ) = (answer.outcome, state.outcome)
    {
        state.reason = Reason::Blocked;
        state.outcome = Outcome::Deny {
            retry_after: blocked.max(retry_after),
        };
    }
}

/// Charges the limits that count denials. One that has nothing left is not charged: its own refusals are not held against
/// the refused on top.
pub(crate) async fn count_denial<S: Asks>(plan: &Plan, generation: &Generation, store: &S) {
    for (position, planned) in plan.planned().iter().enumerate() {
        let counts = generation
            .rule(planned.rule)
            .is_some_and(|(rule, _)| rule.count == Count::Denials);
        if counts && matches!(planned.role, Role::Main | Role::Local) {
            // The denial stands whether or not it could be counted.
            let counted = plan.ask_alone(generation, store, position, Op::Spend(planned.cost));
            drop(counted.await);
        }
    }
}

fn state_of<'a>(states: &'a mut [LimitState], planned: &Planned) -> Option<&'a mut LimitState> {
    let is_of = |state: &&mut LimitState| {
        (state.rule_index(), usize::from(state.meter)) == (planned.rule, planned.meter)
    };
    states.iter_mut().find(is_of)
}
