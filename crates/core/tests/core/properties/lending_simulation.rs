//! A book and its borrowers under simulated time: a network that delays, reorders, repeats and loses, nodes that die, clocks
//! that differ and drift. Judged by what was really spent, and when.

use std::collections::BTreeSet;

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LocalLease, QuotaLeaseId};
use tollgate_core::{Nanos, Timestamp};
use tollgate_testkit::oracle::BucketLog;

use super::harness::{Checked, ensure};
use super::subject::at;

const BEGIN: u64 = 1_700_000_000_000_000_000;
pub(super) const INTERVAL: u64 = 1_000;
/// How long slices live, and how much earlier nodes stop: drift is at most 4 in 1,000.
const LIFE: u64 = 20_000;
const MARGIN: u64 = 100;

/// The lender's side, real or wrong. Units, not blocks.
pub(super) trait Lender {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool;
    fn lend(&mut self, now: Timestamp, want: &LeaseSpec) -> u64;
    fn report(&mut self, now: Timestamp, report: &LeaseReport);
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Move {
    /// A direct decision at the lender.
    Decide(u64),
    /// A direct decision on as much as the lender will admit: what a wrong lender has minted is found at once.
    DecideOnAll,
    Ask {
        node: usize,
        want: u64,
    },
    /// Spends from the slices a node has, until one has it.
    Spend {
        node: usize,
        cost: u64,
    },
    /// Spends all it has just before the slice dies.
    SpendAtTheLastMoment(usize),
    Report(usize),
    Return(usize),
    /// A request that somebody else of the batch refused.
    Unspend(usize),
    Dies(usize),
}

/// What a move meets: time since the last one, and the fate of what it sends: delays there and back, lost or not, once or
/// twice.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    pub(super) advance: u64,
    pub(super) what: Move,
    pub(super) there: u64,
    pub(super) back: u64,
    pub(super) is_lost: bool,
    pub(super) is_repeated: bool,
}

pub(super) fn turns() -> impl Strategy<Value = Vec<Turn>> {
    let node = || 0_usize..3;
    let what = prop_oneof![
        2 => (0_u64..6).prop_map(Move::Decide),
        3 => Just(Move::DecideOnAll),
        4 => (node(), 1_u64..16).prop_map(|(node, want)| Move::Ask { node, want }),
        6 => (node(), 1_u64..4).prop_map(|(node, cost)| Move::Spend { node, cost }),
        3 => node().prop_map(Move::SpendAtTheLastMoment),
        3 => node().prop_map(Move::Report),
        2 => node().prop_map(Move::Return),
        1 => node().prop_map(Move::Unspend),
        1 => node().prop_map(Move::Dies),
    ];
    let advance = prop_oneof![3 => Just(0), 3 => 0..INTERVAL * 2, 2 => 0..LIFE];
    let delay = || prop_oneof![2 => Just(0), 2 => 0..INTERVAL * 3, 1 => 0..LIFE / 2];
    let fate = (prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    let turn = (advance, what, delay(), delay(), fate);
    let turn = turn.prop_map(|(advance, what, there, back, fate)| Turn {
        advance,
        what,
        there,
        back,
        is_lost: fate.0,
        is_repeated: fate.1,
    });
    prop::collection::vec(turn, 1..70)
}

/// A message on its way.
#[derive(Clone, Copy, Debug)]
enum Message {
    Ask {
        node: usize,
        id: QuotaLeaseId,
        want: u64,
        asked: Timestamp,
        back: u64,
    },
    Grant {
        node: usize,
        id: QuotaLeaseId,
        amount: u64,
        asked: Timestamp,
    },
    Report(LeaseReport),
}

/// How nodes may be wrong, and how their clocks are.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nodes {
    /// How far behind the lender's clock each begins.
    pub(super) behind: u64,
    /// Thousandths by which the second runs fast and the third slow.
    pub(super) drift: u64,
    /// Counts a slice's life from when the answer came.
    pub(super) counts_from_the_answer: bool,
    /// Says again that it was spent later than it was, by so much.
    pub(super) backdates: u64,
}

struct Simulation<L> {
    lender: L,
    nodes: Nodes,
    now: u64,
    next_id: u128,
    slices: [Vec<LocalLease>; 3],
    known: BTreeSet<QuotaLeaseId>,
    network: Vec<(u64, Message)>,
    /// Units really spent, when.
    log: BucketLog,
    unit: i128,
}

impl<L: Lender> Simulation<L> {
    /// The node's clock: behind, and drifting since the beginning.
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
            self.network.push((self.now + turn.there, message));
        }
        if turn.is_repeated {
            let later = self.now + turn.there + turn.back;
            self.network.push((later, message));
        }
    }

    fn tell(&mut self, turn: &Turn, mut report: LeaseReport) {
        let wrongly = Nanos::from_nanos(self.nodes.backdates);
        report.last_spend_age = report.last_spend_age.saturating_add(wrongly);
        self.send(turn, Message::Report(report));
    }

    fn spent(&mut self, units: u64) {
        self.log.charge(self.now, i128::from(units) * self.unit);
    }

    /// Moves time on, delivering what arrives on the way, in order of arrival.
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
            Message::Ask {
                node,
                id,
                want,
                asked,
                back,
            } => {
                let want = LeaseSpec {
                    id,
                    min_units: 1,
                    max_units: want,
                    duration: Nanos::from_nanos(LIFE),
                };
                let amount = self.lender.lend(now, &want);
                let grant = Message::Grant {
                    node,
                    id,
                    amount,
                    asked,
                };
                self.network.push((self.now + back, grant));
            }
            Message::Grant {
                node,
                id,
                amount,
                asked,
            } => {
                let answered = self.clock(node);
                let from = if self.nodes.counts_from_the_answer {
                    answered
                } else {
                    asked
                };
                let (life, margin) = (Nanos::from_nanos(LIFE), Nanos::from_nanos(MARGIN));
                // One id makes one slice, however many answers arrive.
                if self.known.insert(id) {
                    self.slices[node].push(LocalLease::new(id, amount, from, life, margin));
                }
            }
            Message::Report(report) => self.lender.report(now, &report),
        }
    }

    fn spend_at_the_last_moment(&mut self, node: usize) {
        // Time goes on to shortly before the slice that lives longest dies, by steps that halve.
        let mut step = LIFE;
        while step > MARGIN / 4 {
            let then = at(self.clock(node).as_nanos() + step);
            if self.slices[node].iter().any(|slice| slice.is_active(then)) {
                self.advance_to(self.now + step);
            } else {
                step /= 2;
            }
        }
        let clock = self.clock(node);
        let mut units = 0;
        for slice in &mut self.slices[node] {
            let left = slice.remaining();
            units += if slice.spend(clock, left) { left } else { 0 };
        }
        self.spent(units);
    }

    fn act(&mut self, turn: &Turn) {
        match turn.what {
            Move::Decide(cost) => {
                if self.lender.decide(at(self.now), cost) {
                    self.spent(cost);
                }
            }
            Move::DecideOnAll => {
                let most = (1..60)
                    .rev()
                    .find(|cost| self.lender.decide(at(self.now), *cost));
                self.spent(most.unwrap_or(0));
            }
            Move::Ask { node, want } => {
                self.next_id += 1;
                let (id, asked, back) = (QuotaLeaseId(self.next_id), self.clock(node), turn.back);
                let ask = Message::Ask {
                    node,
                    id,
                    want,
                    asked,
                    back,
                };
                self.send(turn, ask);
            }
            Move::Spend { node, cost } => {
                let clock = self.clock(node);
                if self.slices[node]
                    .iter_mut()
                    .any(|slice| slice.spend(clock, cost))
                {
                    self.spent(cost);
                }
            }
            Move::SpendAtTheLastMoment(node) => self.spend_at_the_last_moment(node),
            Move::Report(node) => {
                let clock = self.clock(node);
                let slices = self.slices[node].iter_mut();
                let reports: Vec<_> = slices.map(|slice| slice.report(clock, false)).collect();
                for report in reports {
                    self.tell(turn, report);
                }
            }
            Move::Return(node) => {
                let clock = self.clock(node);
                if let Some(mut slice) = self.slices[node].pop() {
                    self.tell(turn, slice.report(clock, true));
                }
            }
            Move::Unspend(node) => {
                // Spent and taken back in one breath, so nobody has gained anything by it.
                let clock = self.clock(node);
                for slice in &mut self.slices[node] {
                    let told = slice.reported();
                    if slice.spend(clock, 1) {
                        assert_eq!(slice.refund(1, told), 1, "nobody was told meanwhile");
                    }
                }
            }
            Move::Dies(node) => self.slices[node].clear(),
        }
    }
}

/// Everything spent anywhere conforms, whatever the clocks say.
pub(super) fn conforms(
    lender: impl Lender,
    (burst, block): (u64, u64),
    nodes: Nodes,
    turns: &[Turn],
) -> Checked {
    // A unit is a block's part of an interval; counted in parts of a nanosecond that divide.
    let scale = i128::from(block);
    let capacity = i128::from(INTERVAL) * i128::from(burst) * scale;
    let mut simulation = Simulation {
        lender,
        nodes,
        now: BEGIN,
        next_id: 0,
        slices: [Vec::new(), Vec::new(), Vec::new()],
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
