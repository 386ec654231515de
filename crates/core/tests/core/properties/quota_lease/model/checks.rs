//! Which actions are possible in a state of the model, and which states violate the quota.

use tollgate_core::quota_lease::{LeasedBucket, LocalLease};
use tollgate_testkit::model_checker::Model;

use super::{Action, BURST, INTERVAL, LeaseModel, Node, State};

impl Model for LeaseModel {
    type State = State;
    type Action = Action;

    fn initial(&self) -> State {
        State {
            now: 0,
            bucket: LeasedBucket::default(),
            nodes: vec![Node::default(); self.bound.nodes],
            network: Vec::new(),
            requests: 0,
            repeats: 0,
            crashes: 0,
            drifts: 0,
            trials: 0,
            direct: 0,
            reference_tat: 0,
        }
    }

    fn actions(&self, state: &State) -> Vec<Action> {
        let bound = &self.bound;
        let mut actions = Vec::new();
        if state.direct < bound.direct {
            actions.push(Action::DecideAtTheBroker);
        }
        let is_time_left = state.now < bound.time;
        if is_time_left {
            actions.push(Action::Tick);
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let can_request = node.pending.is_none() && node.leases.is_empty();
            if can_request && state.requests < bound.requests {
                actions.extend([Action::Request(index, 1), Action::Request(index, BURST)]);
            }
            if node.pending.is_some() {
                actions.push(Action::GiveUp(index));
            }
            let is_first = index == 0;
            if is_first && is_time_left && state.drifts < bound.drifts {
                actions.extend([Action::GainTick(index), Action::TickExceptNode(index)]);
            }
            if node.leases.is_empty() {
                continue;
            }
            actions.extend([
                Action::Spend(index),
                Action::Report(index),
                Action::Return(index),
            ]);
            if is_first && state.trials < bound.trials {
                actions.push(Action::Trial(index));
            }
            if node.trial.is_some() {
                actions.push(Action::DenyTrial(index));
            }
            if state.crashes < bound.crashes {
                actions.push(Action::Crash(index));
            }
        }
        for index in 0..state.network.len() {
            actions.extend([Action::Deliver(index), Action::Lose(index)]);
            if state.repeats < bound.repeats {
                actions.push(Action::DeliverTwice(index));
            }
        }
        actions
    }

    fn next(&self, state: &State, action: Action) -> Option<State> {
        let mut next = state.clone();
        self.act(&mut next, action)?;
        // A paid debt is zero, so that states that differ in nothing else are equal.
        if next.reference_tat <= Self::now(&next).as_nanos() {
            next.reference_tat = 0;
        }
        Some(next)
    }

    fn broken(&self, state: &State) -> Option<String> {
        let now = Self::now(state);
        let debt = state.reference_tat.saturating_sub(now.as_nanos());
        let active = state.nodes.iter().enumerate().flat_map(|(index, node)| {
            let clock = self.clock_to_spend_by(state, index);
            node.leases
                .iter()
                .filter(move |lease| lease.is_active(clock))
        });
        let direct = state.bucket.status(&self.quota, now).remaining;
        let spendable = active.map(LocalLease::remaining).sum::<u64>() + direct;
        if debt + spendable * INTERVAL > BURST * INTERVAL {
            return Some(format!("{spendable} may be spent on a debt of {debt}"));
        }
        let total: u64 = state
            .bucket
            .leases()
            .iter()
            .map(|lease| lease.blocks - lease.spent)
            .sum();
        if total > BURST {
            return Some(format!("{total} blocks are outstanding"));
        }
        for (index, node) in state.nodes.iter().enumerate() {
            let clock = Self::clock(state, index);
            for lease in node.leases.iter().filter(|lease| lease.is_active(clock)) {
                let mut granted = state.bucket.leases().iter();
                let grant = granted.find(|grant| grant.id == lease.id() && grant.expires > now);
                let outstanding = grant.map_or(0, |grant| grant.blocks - grant.spent);
                if lease.remaining() > outstanding {
                    return Some(format!("node {index} may spend more than {outstanding}"));
                }
            }
        }
        None
    }
}
