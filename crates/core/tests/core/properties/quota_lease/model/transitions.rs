//! What each action does to a state of the model.

use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};

use super::{
    Action, BURST, Bound, DURATION, INTERVAL, LeaseModel, MARGIN, Message, Mistake, Node, State,
    UNIT,
};

impl LeaseModel {
    pub(super) fn new(bound: Bound, mistake: Mistake) -> Self {
        let rate = Rate::new(1, Nanos::from_nanos(INTERVAL));
        let quota = TokenBucket::builder(rate).burst(BURST).build().unwrap();
        Self {
            bound,
            mistake,
            quota,
        }
    }

    pub(super) fn now(state: &State) -> Timestamp {
        // Far enough from 1970 that no subtraction is clamped there.
        Timestamp::from_nanos((1_000 + state.now) * UNIT)
    }

    pub(super) fn clock(state: &State, node: usize) -> Timestamp {
        Self::now(state).after(Nanos::from_nanos(state.nodes[node].ahead * UNIT))
    }

    pub(super) fn clock_to_spend_by(&self, state: &State, node: usize) -> Timestamp {
        match self.mistake {
            Mistake::SpendsExpired => Timestamp::from_nanos(UNIT),
            _ => Self::clock(state, node),
        }
    }

    fn margin(&self) -> Nanos {
        let has_no_margin = self.mistake == Mistake::ForgetsTheMargin;
        Nanos::from_nanos(if has_no_margin { 0 } else { MARGIN })
    }

    fn record_spend(state: &mut State) {
        let now = Self::now(state).as_nanos();
        state.reference_tat = state.reference_tat.max(now) + INTERVAL;
    }

    fn send(&self, state: &mut State, message: Message) -> Option<()> {
        if state.network.len() >= self.bound.in_flight {
            return None;
        }
        state.network.push(message);
        state.network.sort();
        Some(())
    }

    fn send_report(&self, state: &mut State, report: LeaseReport) -> Option<()> {
        let backdated = match self.mistake {
            Mistake::BackdatesReports => UNIT,
            _ => 0,
        };
        let message = Message::Report {
            id: report.id.0,
            spent: report.spent,
            age: report.last_spend_age.as_nanos() + backdated,
            is_last: report.is_last,
        };
        self.send(state, message)
    }

    fn deliver(&self, state: &mut State, message: Message) {
        let now = Self::now(state);
        match message {
            Message::Request { node, id, units } => {
                let spec = LeaseSpec {
                    id: QuotaLeaseId(id),
                    min_units: 1,
                    max_units: units,
                    duration: Nanos::from_nanos(DURATION),
                };
                let amount = state.bucket.grant(&self.quota, now, &spec);
                // The grant replaces the request, so the bound on messages holds.
                state.network.push(Message::Grant { node, id, amount });
                state.network.sort();
            }
            Message::Grant { node, id, amount } => self.receive(state, node, id, amount),
            Message::Report {
                id,
                mut spent,
                age,
                is_last,
            } => {
                let lease = state.bucket.leases().iter().find(|lease| lease.id.0 == id);
                let known = lease.map_or(0, |lease| lease.spent);
                match self.mistake {
                    Mistake::ReportsAddUp => spent += known,
                    Mistake::ReturnForgives if is_last => spent = known,
                    _ => {}
                }
                let report = LeaseReport {
                    id: QuotaLeaseId(id),
                    spent,
                    last_spend_age: Nanos::from_nanos(age),
                    is_last,
                };
                state.bucket.apply_report(&self.quota, now, &report);
            }
        }
    }

    fn receive(&self, state: &mut State, node: usize, id: u128, amount: u64) {
        let replied_at = Self::clock(state, node);
        let margin = self.margin();
        let node = &mut state.nodes[node];
        let requested_at = match node.pending {
            Some((waiting, requested_at)) if waiting == id => requested_at,
            _ if self.mistake == Mistake::OneIdManyLeases => replied_at,
            // The node has stopped waiting, or already has the lease.
            _ => return,
        };
        node.pending = None;
        let from = match self.mistake {
            Mistake::CountsFromTheReply => replied_at,
            _ => requested_at,
        };
        if amount > 0 {
            let duration = Nanos::from_nanos(DURATION);
            node.leases.push(LocalLease::new(
                QuotaLeaseId(id),
                amount,
                from,
                duration,
                margin,
            ));
        }
    }

    pub(super) fn act(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Tick => state.now += 1,
            Action::TickExceptNode(node) => {
                state.now += 1;
                state.drifts += 1;
                state.nodes[node].ahead = state.nodes[node].ahead.checked_sub(1)?;
            }
            Action::GainTick(node) => {
                state.drifts += 1;
                let ahead = &mut state.nodes[node].ahead;
                *ahead = Some(*ahead + 1).filter(|ahead| ahead * UNIT <= MARGIN)?;
            }
            Action::Crash(node) => {
                state.crashes += 1;
                let ahead = state.nodes[node].ahead;
                state.nodes[node] = Node {
                    ahead,
                    ..Node::default()
                };
            }
            Action::DecideAtTheBroker => {
                state.direct += 1;
                let now = Self::now(state);
                let outcome = state.bucket.decide(&self.quota, now, 1);
                outcome.is_admitted().then(|| Self::record_spend(state))?;
            }
            Action::Deliver(index) => {
                let message = state.network.remove(index);
                self.deliver(state, message);
            }
            Action::Lose(index) => {
                state.network.remove(index);
            }
            Action::DeliverTwice(index) => {
                state.repeats += 1;
                let message = state.network[index];
                self.deliver(state, message);
            }
            _ => self.act_on_leases(state, action)?,
        }
        Some(())
    }

    /// The actions of a node on its leases.
    fn act_on_leases(&self, state: &mut State, action: Action) -> Option<()> {
        match action {
            Action::Request(node, units) => {
                let clock = Self::clock(state, node);
                state.requests += 1;
                let id = u128::from(state.requests);
                state.nodes[node].pending = Some((id, clock));
                self.send(state, Message::Request { node, id, units })?;
            }
            Action::GiveUp(node) => {
                let (id, clock) = state.nodes[node].pending.take()?;
                let zero = Nanos::ZERO;
                let mut empty_lease = LocalLease::new(QuotaLeaseId(id), 0, clock, zero, zero);
                self.send_report(state, empty_lease.report(clock, true))?;
            }
            Action::Spend(node) => {
                let clock = self.clock_to_spend_by(state, node);
                let node = &mut state.nodes[node];
                spend(&mut node.leases, clock)?;
                Self::record_spend(state);
            }
            Action::Trial(node) => {
                state.trials += 1;
                let clock = self.clock_to_spend_by(state, node);
                let node = &mut state.nodes[node];
                let reported = node.leases.first()?.reported();
                if node.trial.replace(reported).is_some() || node.leases.len() != 1 {
                    return None;
                }
                spend(&mut node.leases, clock)?;
            }
            Action::DenyTrial(node) => {
                let node = &mut state.nodes[node];
                let reported = node.trial.take()?;
                let lease = node.leases.first_mut()?;
                let reported = match self.mistake {
                    Mistake::RefundsReportedUnits => lease.reported(),
                    _ => reported,
                };
                lease.refund(1, reported);
            }
            Action::Report(node) => {
                let clock = Self::clock(state, node);
                let lease = state.nodes[node].leases.first_mut()?;
                let report = lease.report(clock, false);
                self.send_report(state, report)?;
            }
            Action::Return(node) => {
                let clock = Self::clock(state, node);
                let mut lease = state.nodes[node].leases.pop()?;
                state.nodes[node].trial = None;
                self.send_report(state, lease.report(clock, true))?;
            }
            _ => return None,
        }
        Some(())
    }
}

fn spend(leases: &mut [LocalLease], clock: Timestamp) -> Option<()> {
    let is_spent = leases.iter_mut().any(|lease| lease.spend(clock, 1));
    is_spent.then_some(())
}
