//! Several nodes and one broker with network and clock faults: they never admit more than the limit (I-01).
//!
//! Calls are delivered late, replied to late, or lost in either direction. Nodes freeze, crash, drift and shut down.
//! Requests are cancelled and refunded. The test checks what was actually admitted, and when.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use tollgate_core::{Nanos, Timestamp};
use tollgate_store::{Clock, IdentifiedLimit, ManualClock, StoreError};
use tollgate_testkit::oracle::BucketLog;

use super::super::{LeaseOptions, LocalLeases, SpendOutcome};
use super::fake_broker::{FakeBroker, Fate, START, bucket_limit, check, clock};

const PER_SECOND: u64 = 20;
const INTERVAL: u64 = 1_000_000_000 / PER_SECOND;
const BURST: u64 = 6;
const STEPS: usize = 600;

/// A deterministic random number generator.
struct SimRng(u64);

impl SimRng {
    fn below(&mut self, n: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) % n.max(1)
    }

    fn index(&mut self, len: usize) -> usize {
        usize::try_from(self.below(len as u64)).unwrap()
    }
}

/// A clock with an offset that runs too fast or too slow.
#[derive(Clone, Debug)]
struct DriftingClock {
    real: Arc<ManualClock>,
    behind: u64,
    /// Drift in thousandths.
    per_mille: u64,
}

impl DriftingClock {
    fn now(&self) -> Timestamp {
        let passed = self.real.now().since(START).as_nanos();
        let passed = passed / 1_000 * self.per_mille;
        Timestamp::from_nanos(START.as_nanos() - self.behind + passed)
    }
}

type Waiting = Pin<Box<dyn Future<Output = Result<SpendOutcome, StoreError>>>>;
type Tending = Pin<Box<dyn Future<Output = ()>>>;

struct Node {
    leases: Arc<LocalLeases>,
    clock: DriftingClock,
    waiting: Vec<(Waiting, u64)>,
    tending: Vec<Tending>,
    /// Admitted here and denied by another limit, but not refunded yet.
    refused: Vec<tollgate_core::Receipt>,
}

struct Simulation {
    rng: SimRng,
    clock: Arc<ManualClock>,
    broker: Arc<FakeBroker>,
    limit: Arc<IdentifiedLimit>,
    options: LeaseOptions,
    nodes: Vec<Node>,
    log: BucketLog,
    admitted: u64,
}

impl Simulation {
    fn new(seed: u64, drift: u64) -> Self {
        let clock = clock();
        let broker = Arc::new(FakeBroker::new(Arc::clone(&clock)));
        broker.set_fate(Fate::InFlight);
        let options = LeaseOptions {
            max_keys: 1_000,
            // Keys are leased and decided by single calls, in turn.
            lease_from: 2,
            ..LeaseOptions::default()
        };
        let mut simulation = Self {
            rng: SimRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            clock,
            broker,
            limit: Arc::new(bucket_limit(PER_SECOND, BURST)),
            options,
            nodes: Vec::new(),
            log: BucketLog::new(INTERVAL, BURST),
            admitted: 0,
        };
        for per_mille in [1_000, 1_000 + drift, 1_000 - drift] {
            let clock = DriftingClock {
                real: Arc::clone(&simulation.clock),
                behind: simulation.rng.below(5_000_000_000),
                per_mille,
            };
            simulation.nodes.push(simulation.node(clock));
        }
        simulation
    }

    fn node(&self, clock: DriftingClock) -> Node {
        let leases = LocalLeases::new(self.options);
        leases.set_nodes(2);
        Node {
            leases: Arc::new(leases),
            clock,
            waiting: Vec::new(),
            tending: Vec::new(),
            refused: Vec::new(),
        }
    }

    fn step(&mut self) {
        let node = self.rng.index(self.nodes.len());
        match self.rng.below(100) {
            0..12 => self.advance(40),
            12..14 => self.advance(3_000),
            14..45 => self.request(node),
            45..60 => self.poll(node),
            60..90 => self.deliver_something(),
            90..93 => self.maintain(node),
            93..97 => self.refund(node),
            97 => {
                let clock = self.nodes[node].clock.clone();
                self.nodes[node] = self.node(clock);
            }
            98 if !self.nodes[node].waiting.is_empty() => {
                drop(self.nodes[node].waiting.remove(0));
            }
            _ => self.close(node),
        }
    }

    fn advance(&mut self, millis: u64) {
        let span = self.rng.below(millis * 1_000_000);
        self.clock.advance(Nanos::from_nanos(span));
    }

    /// A request arrives; another limit will deny one in five.
    fn request(&mut self, node: usize) {
        let cost = 1 + self.rng.below(6) / 4;
        let (leases, clock) = (&self.nodes[node].leases, &self.nodes[node].clock);
        match leases.spend(&check(&self.limit, cost), clock.now()) {
            SpendOutcome::Borrow => {
                let (leases, clock) = (Arc::clone(leases), clock.clone());
                let (broker, limit) = (Arc::clone(&self.broker), Arc::clone(&self.limit));
                let waiting = Box::pin(async move {
                    let check = check(&limit, cost);
                    if leases.is_lease_worthwhile(&check, clock.now()) {
                        leases.borrow(&*broker, None, &check, || clock.now()).await
                    } else {
                        leases.spend_at_broker(&*broker, None, &check).await
                    }
                });
                self.nodes[node].waiting.push((waiting, cost));
            }
            outcome => self.record(node, outcome, cost),
        }
    }

    fn record(&mut self, node: usize, outcome: SpendOutcome, cost: u64) {
        let SpendOutcome::Admitted(reply) = outcome else {
            return;
        };
        // Direct decisions of the broker are in its own list.
        if reply.receipt.mark == 0 {
            return;
        }
        assert_eq!(reply.receipt.cost, cost);
        if self.rng.below(5) == 0 {
            self.nodes[node].refused.push(reply.receipt);
            return;
        }
        self.admitted += 1;
        let price = i128::from(cost) * i128::from(INTERVAL);
        self.log.charge(self.clock.now().as_nanos(), price);
    }

    fn poll(&mut self, node: usize) {
        let mut context = Context::from_waker(Waker::noop());
        let mut done = Vec::new();
        let node_state = &mut self.nodes[node];
        node_state
            .waiting
            .retain_mut(|(one, cost)| match one.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(outcome) => {
                    done.extend(outcome.ok().map(|outcome| (outcome, *cost)));
                    false
                }
            });
        node_state
            .tending
            .retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
        for (outcome, cost) in done {
            self.record(node, outcome, cost);
        }
    }

    fn deliver_something(&mut self) {
        let in_flight: Vec<usize> = {
            let calls = self.broker.calls();
            let open = calls
                .iter()
                .enumerate()
                .filter(|(_, call)| call.outcome.is_none());
            open.map(|(index, _)| index).collect()
        };
        if in_flight.is_empty() {
            return;
        }
        let index = in_flight[self.rng.index(in_flight.len())];
        let is_delivered = self.broker.calls()[index].grant.is_some();
        match (is_delivered, self.rng.below(10)) {
            (_, 0) => self.broker.deliver_reply(index, true),
            (false, _) => self.broker.deliver(index),
            (true, _) => self.broker.deliver_reply(index, false),
        }
    }

    fn maintain(&mut self, node: usize) {
        let node_state = &mut self.nodes[node];
        let (leases, clock) = (Arc::clone(&node_state.leases), node_state.clock.clone());
        let broker = Arc::clone(&self.broker);
        node_state.tending.push(Box::pin(async move {
            for _ in 0..8 {
                leases.maintain(&*broker, || clock.now()).await;
            }
        }));
    }

    fn close(&mut self, node: usize) {
        let node_state = &mut self.nodes[node];
        let clock = node_state.clock.clone();
        let fresh = self.node(clock.clone());
        let old = std::mem::replace(&mut self.nodes[node], fresh);
        let broker = Arc::clone(&self.broker);
        self.nodes[node].tending.push(Box::pin(async move {
            old.leases.return_all(&*broker, || clock.now()).await;
        }));
    }

    fn refund(&mut self, node: usize) {
        let node_state = &mut self.nodes[node];
        if let Some(receipt) = node_state.refused.pop() {
            let check = check(&self.limit, receipt.cost);
            node_state
                .leases
                .refund(&check, &receipt, node_state.clock.now());
        }
    }

    /// The worst over-admission, and the total.
    fn finish(mut self) -> (i128, u64) {
        for _ in 0..STEPS {
            self.step();
        }
        for (at, cost) in self.broker.direct_spends.lock().unwrap().iter() {
            let price = i128::from(*cost) * i128::from(INTERVAL);
            self.log.charge(at.as_nanos(), price);
        }
        (self.log.worst_excess(), self.admitted)
    }
}

#[test]
fn i01_under_any_fault_between_nodes_and_broker_the_limit_holds() {
    let mut all = 0;
    for seed in 0..200 {
        let (excess, admitted) = Simulation::new(seed + 1, seed % 9).finish();
        assert!(excess <= 0, "seed {seed}: {excess} ns too much");
        all += admitted;
    }
    println!("{all} admitted");
    assert!(
        all > 1_500,
        "only {all} were admitted: the test proves nothing"
    );
}

#[test]
fn control_clocks_beyond_the_margin_are_caught() {
    let is_caught = (0..150).any(|seed| Simulation::new(seed + 1, 400).finish().0 > 0);
    assert!(is_caught);
}
