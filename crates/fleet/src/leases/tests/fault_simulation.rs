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
use super::fake_broker::{FakeBroker, Fate, START, check, clock, ruled};

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
    dice: SimRng,
    clock: Arc<ManualClock>,
    lender: Arc<FakeBroker>,
    ruled: Arc<IdentifiedLimit>,
    terms: LeaseOptions,
    nodes: Vec<Node>,
    log: BucketLog,
    admitted: u64,
}

impl Simulation {
    fn new(seed: u64, drift: u64) -> Self {
        let clock = clock();
        let lender = Arc::new(FakeBroker::new(Arc::clone(&clock)));
        lender.set_fate(Fate::UnderWay);
        let terms = LeaseOptions {
            max_keys: 1_000,
            ..LeaseOptions::default()
        };
        let mut world = Self {
            dice: SimRng(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1),
            clock,
            lender,
            ruled: Arc::new(ruled(PER_SECOND, BURST)),
            terms,
            nodes: Vec::new(),
            log: BucketLog::new(INTERVAL, BURST),
            admitted: 0,
        };
        for per_mille in [1_000, 1_000 + drift, 1_000 - drift] {
            let clock = DriftingClock {
                real: Arc::clone(&world.clock),
                behind: world.dice.below(5_000_000_000),
                per_mille,
            };
            world.nodes.push(world.node(clock));
        }
        world
    }

    fn node(&self, clock: DriftingClock) -> Node {
        let leases = LocalLeases::new(self.terms);
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
        let node = self.dice.index(self.nodes.len());
        match self.dice.below(100) {
            0..12 => self.pass(40),
            12..14 => self.pass(3_000),
            14..45 => self.request(node),
            45..60 => self.look(node),
            60..90 => self.network(),
            90..93 => self.tend(node),
            93..97 => self.take_back(node),
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

    fn pass(&mut self, millis: u64) {
        let span = self.dice.below(millis * 1_000_000);
        self.clock.advance(Nanos::from_nanos(span));
    }

    /// A request arrives; another limit will deny one in five.
    fn request(&mut self, node: usize) {
        let cost = 1 + self.dice.below(6) / 4;
        let (leases, clock) = (&self.nodes[node].leases, &self.nodes[node].clock);
        match leases.spend(&check(&self.ruled, cost), clock.now()) {
            SpendOutcome::Borrow => {
                let (leases, clock) = (Arc::clone(leases), clock.clone());
                let (lender, ruled) = (Arc::clone(&self.lender), Arc::clone(&self.ruled));
                let waiting = Box::pin(async move {
                    let check = check(&ruled, cost);
                    leases.borrow(&*lender, None, &check, || clock.now()).await
                });
                self.nodes[node].waiting.push((waiting, cost));
            }
            taken => self.taken(node, taken, cost),
        }
    }

    fn taken(&mut self, node: usize, taken: SpendOutcome, cost: u64) {
        let SpendOutcome::Admitted(answer) = taken else {
            return;
        };
        // Direct decisions of the broker are in its own list.
        if answer.receipt.mark == 0 {
            return;
        }
        assert_eq!(answer.receipt.cost, cost);
        if self.dice.below(5) == 0 {
            self.nodes[node].refused.push(answer.receipt);
            return;
        }
        self.admitted += 1;
        let price = i128::from(cost) * i128::from(INTERVAL);
        self.log.charge(self.clock.now().as_nanos(), price);
    }

    fn look(&mut self, node: usize) {
        let mut context = Context::from_waker(Waker::noop());
        let mut done = Vec::new();
        let here = &mut self.nodes[node];
        here.waiting
            .retain_mut(|(one, cost)| match one.as_mut().poll(&mut context) {
                Poll::Pending => true,
                Poll::Ready(taken) => {
                    done.extend(taken.ok().map(|taken| (taken, *cost)));
                    false
                }
            });
        here.tending
            .retain_mut(|one| one.as_mut().poll(&mut context).is_pending());
        for (taken, cost) in done {
            self.taken(node, taken, cost);
        }
    }

    fn network(&mut self) {
        let under_way: Vec<usize> = {
            let calls = self.lender.calls();
            let open = calls
                .iter()
                .enumerate()
                .filter(|(_, call)| call.outcome.is_none());
            open.map(|(index, _)| index).collect()
        };
        if under_way.is_empty() {
            return;
        }
        let index = under_way[self.dice.index(under_way.len())];
        let is_delivered = self.lender.calls()[index].granted.is_some();
        match (is_delivered, self.dice.below(10)) {
            (_, 0) => self.lender.answer(index, true),
            (false, _) => self.lender.deliver(index),
            (true, _) => self.lender.answer(index, false),
        }
    }

    fn tend(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        let (leases, clock) = (Arc::clone(&here.leases), here.clock.clone());
        let lender = Arc::clone(&self.lender);
        here.tending.push(Box::pin(async move {
            for _ in 0..8 {
                leases.maintain(&*lender, || clock.now()).await;
            }
        }));
    }

    fn close(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        let clock = here.clock.clone();
        let fresh = self.node(clock.clone());
        let old = std::mem::replace(&mut self.nodes[node], fresh);
        let lender = Arc::clone(&self.lender);
        self.nodes[node].tending.push(Box::pin(async move {
            old.leases.return_all(&*lender, || clock.now()).await;
        }));
    }

    fn take_back(&mut self, node: usize) {
        let here = &mut self.nodes[node];
        if let Some(receipt) = here.refused.pop() {
            let check = check(&self.ruled, receipt.cost);
            here.leases.refund(&check, &receipt, here.clock.now());
        }
    }

    /// The worst over-admission, and the total.
    fn finish(mut self) -> (i128, u64) {
        for _ in 0..STEPS {
            self.step();
        }
        for (at, cost) in self.lender.spent.lock().unwrap().iter() {
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
    assert!(all > 1_500, "only {all} were admitted: this tries nothing");
}

#[test]
fn control_clocks_beyond_the_margin_are_caught() {
    let is_caught = (0..150).any(|seed| Simulation::new(seed + 1, 400).finish().0 > 0);
    assert!(is_caught);
}
