//! A leased bucket and its nodes under simulated time: a network that delays, reorders, repeats and loses messages, nodes that crash,
//! clocks that differ and drift. The checker counts what was really spent, and when.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Timestamp};
use tollgate_testkit::oracle::BucketLog;

use super::super::harness::{CheckResult, ensure};
use super::super::subject::at;

const BEGIN: u64 = 1_700_000_000_000_000_000;
pub(super) const INTERVAL: u64 = 1_000;
/// The duration of leases, and how much earlier nodes stop: drift is at most 4 in 1,000.
const DURATION: u64 = 20_000;
const MARGIN: u64 = 100;

/// The broker's side, real or wrong. Units, not blocks.
pub(super) trait Broker {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool;
    fn grant(&mut self, now: Timestamp, spec: &LeaseSpec) -> u64;
    fn apply_report(&mut self, now: Timestamp, report: &LeaseReport);
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// A direct decision at the broker.
    Decide(u64),
    /// A direct decision on as much as the broker admits, which shows at once what a wrong broker has minted.
    DecideOnAll,
    Request {
        node: usize,
        units: u64,
    },
    /// Spends from the first lease of a node that has enough.
    Spend {
        node: usize,
        cost: u64,
    },
    /// Spends everything just before the lease expires.
    SpendAtTheLastMoment(usize),
    Report(usize),
    Return(usize),
    /// A request that another limit of the batch denied.
    Refund(usize),
    Crash(usize),
}

/// A move, the time since the previous one, and the fate of its message: delays there and back, whether it is lost, whether it arrives
/// twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) advance: u64,
    pub(super) what: Move,
    pub(super) request_delay: u64,
    pub(super) reply_delay: u64,
    pub(super) is_lost: bool,
    pub(super) is_repeated: bool,
}

pub(super) fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let node = || 0_usize..3;
    let what = prop_oneof![
        2 => (0_u64..6).prop_map(Move::Decide),
        3 => Just(Move::DecideOnAll),
        4 => (node(), 1_u64..16).prop_map(|(node, units)| Move::Request { node, units }),
        6 => (node(), 1_u64..4).prop_map(|(node, cost)| Move::Spend { node, cost }),
        3 => node().prop_map(Move::SpendAtTheLastMoment),
        3 => node().prop_map(Move::Report),
        2 => node().prop_map(Move::Return),
        1 => node().prop_map(Move::Refund),
        1 => node().prop_map(Move::Crash),
    ];
    let advance = prop_oneof![3 => Just(0), 3 => 0..INTERVAL * 2, 2 => 0..DURATION];
    let delay = || prop_oneof![2 => Just(0), 2 => 0..INTERVAL * 3, 1 => 0..DURATION / 2];
    let fate = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let turn = (advance, what, delay(), delay(), fate);
    let turn = turn.prop_map(|(advance, what, request_delay, reply_delay, fate)| Turn {
        advance,
        what,
        request_delay,
        reply_delay,
        is_lost: fate.0,
        is_repeated: fate.1,
    });
    prop::collection::vec(turn, 1..70)
}

/// A message in flight.
#[derive(Clone, Copy, Debug)]
enum Message {
    Request {
        node: usize,
        id: QuotaLeaseId,
        units: u64,
        requested_at: Timestamp,
        reply_delay: u64,
    },
    Grant {
        node: usize,
        id: QuotaLeaseId,
        amount: u64,
        requested_at: Timestamp,
    },
    Report(LeaseReport),
}

/// The clocks of the nodes, and their mistakes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    /// How far each begins behind the broker's clock.
    pub(super) behind: u64,
    /// Thousandths by which the second runs fast and the third slow.
    pub(super) drift: u64,
    /// Counts the duration of a lease from the reply.
    pub(super) counts_from_the_reply: bool,
    /// Reports units as spent this much earlier than they were.
    pub(super) backdates: u64,
}

struct Simulation<B> {
    broker: B,
    nodes: Nodes,
    now: u64,
    next_id: u128,
    leases: [Vec<LocalLease>; 3],
    known: BTreeSet<QuotaLeaseId>,
    network: Vec<(u64, Message)>,
    /// Units really spent, and when.
    log: BucketLog,
    unit: i128,
}

impl<B: Broker> Simulation<B> {
    /// The node's clock: behind, and drifting since the start.
    fn clock(&self, node: usize) -> Timestamp {
        let passed = self.now - BEGIN;
        let drifted = match node {
            1 => passed + passed * self.nodes.drift / 1_000,
            2 => passed - passed * self.nodes.drift / 1_000,
            _ => passed,
        };
        at(BEGIN - self.nodes.behind + drifted)
    }

    fn send(&mut self, turn: &Turn, message: Message) {
        if !turn.is_lost {
            self.network.push((self.now + turn.request_delay, message));
        }
        if turn.is_repeated {
            let later = self.now + turn.request_delay + turn.reply_delay;
            self.network.push((later, message));
        }
    }

    fn send_report(&mut self, turn: &Turn, mut report: LeaseReport) {
        let backdated = Nanos::from_nanos(self.nodes.backdates);
        report.last_spend_age = report.last_spend_age.saturating_add(backdated);
        self.send(turn, Message::Report(report));
    }

    fn record_spend(&mut self, units: u64) {
        self.log.charge(self.now, i128::from(units) * self.unit);
    }

    /// Advances time and delivers the messages that arrive meanwhile, in order of arrival.
    fn advance_to(&mut self, then: u64) {
        loop {
            let due = self
                .network
                .iter()
                .enumerate()
                .filter(|(_, sent)| sent.0 <= then);
            let Some((index, _)) = due.min_by_key(|(_, sent)| sent.0) else {
                break;
            };
            let (when, message) = self.network.remove(index);
            self.now = self.now.max(when);
            self.deliver(message);
        }
        self.now = then;
    }

    fn deliver(&mut self, message: Message) {
        let now = at(self.now);
        match message {
            Message::Request {
                node,
                id,
                units,
                requested_at,
                reply_delay,
            } => {
                let spec = LeaseSpec {
                    id,
                    min_units: 1,
                    max_units: units,
                    duration: Nanos::from_nanos(DURATION),
                };
                let amount = self.broker.grant(now, &spec);
                let grant = Message::Grant {
                    node,
                    id,
                    amount,
                    requested_at,
                };
                self.network.push((self.now + reply_delay, grant));
            }
            Message::Grant {
                node,
                id,
                amount,
                requested_at,
            } => {
                let replied_at = self.clock(node);
                let from = if self.nodes.counts_from_the_reply {
                    replied_at
                } else {
                    requested_at
                };
                let (duration, margin) = (Nanos::from_nanos(DURATION), Nanos::from_nanos(MARGIN));
                // One id makes one lease, however many replies arrive.
                if self.known.insert(id) {
                    self.leases[node].push(LocalLease::new(id, amount, from, duration, margin));
                }
            }
            Message::Report(report) => self.broker.apply_report(now, &report),
        }
    }

    fn spend_at_the_last_moment(&mut self, node: usize) {
        // Advances time to shortly before the longest lease expires, by steps that halve.
        let mut step = DURATION;
        while step > MARGIN / 4 {
            let then = at(self.clock(node).as_nanos() + step);
            if self.leases[node].iter().any(|lease| lease.is_active(then)) {
                self.advance_to(self.now + step);
            } else {
                step /= 2;
            }
        }
        let clock = self.clock(node);
        let mut units = 0;
        for lease in &mut self.leases[node] {
            let left = lease.remaining();
            units += if lease.spend(clock, left) { left } else { 0 };
        }
        self.record_spend(units);
    }

    fn act(&mut self, turn: &Turn) {
        match turn.what {
            Move::Decide(cost) => {
                if self.broker.decide(at(self.now), cost) {
                    self.record_spend(cost);
                }
            }
            Move::DecideOnAll => {
                let most = (1..60)
                    .rev()
                    .find(|cost| self.broker.decide(at(self.now), *cost));
                self.record_spend(most.unwrap_or(0));
            }
            Move::Request { node, units } => {
                self.next_id += 1;
                let (id, requested_at, reply_delay) = (
                    QuotaLeaseId(self.next_id),
                    self.clock(node),
                    turn.reply_delay,
                );
                let request = Message::Request {
                    node,
                    id,
                    units,
                    requested_at,
                    reply_delay,
                };
                self.send(turn, request);
            }
            Move::Spend { node, cost } => {
                let clock = self.clock(node);
                if self.leases[node]
                    .iter_mut()
                    .any(|lease| lease.spend(clock, cost))
                {
                    self.record_spend(cost);
                }
            }
            Move::SpendAtTheLastMoment(node) => self.spend_at_the_last_moment(node),
            Move::Report(node) => {
                let clock = self.clock(node);
                let leases = self.leases[node].iter_mut();
                let reports: Vec<_> = leases.map(|lease| lease.report(clock, false)).collect();
                for report in reports {
                    self.send_report(turn, report);
                }
            }
            Move::Return(node) => {
                let clock = self.clock(node);
                if let Some(mut lease) = self.leases[node].pop() {
                    self.send_report(turn, lease.report(clock, true));
                }
            }
            Move::Refund(node) => {
                // Spent and refunded at once, so no report comes between.
                let clock = self.clock(node);
                for lease in &mut self.leases[node] {
                    let reported = lease.reported();
                    if lease.spend(clock, 1) {
                        assert_eq!(lease.refund(1, reported), 1, "no report was made meanwhile");
                    }
                }
            }
            Move::Crash(node) => self.leases[node].clear(),
        }
    }
}

/// Everything spent anywhere conforms, whatever the clocks show.
pub(super) fn conforms(
    broker: impl Broker,
    (burst, block): (u64, u64),
    nodes: Nodes,
    turns: &[Turn],
) -> CheckResult {
    // A unit is a block's part of an interval, counted in parts of a nanosecond that divide.
    let scale = i128::from(block);
    let capacity = i128::from(INTERVAL) * i128::from(burst) * scale;
    let mut simulation = Simulation {
        broker,
        nodes,
        now: BEGIN,
        next_id: 0,
        leases: [Vec::new(), Vec::new(), Vec::new()],
        known: BTreeSet::new(),
        network: Vec::new(),
        log: BucketLog::with_capacity(capacity),
        unit: i128::from(INTERVAL),
    };
    for turn in turns {
        simulation.advance_to(simulation.now + turn.advance);
        simulation.act(turn);
    }
    let excess = simulation.log.scaled_excess(scale);
    ensure!(excess <= 0, "{excess} parts too much");
    Ok(())
}
