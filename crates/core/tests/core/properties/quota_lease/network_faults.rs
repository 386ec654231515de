//! Leases as a simulation (I-01): one leased bucket and several nodes. The network delays, reorders, repeats and loses messages; nodes
//! crash; clocks differ and drift. Everything spent anywhere must conform to the quota in every window.
//!
//! Precisely: counting every unit when it was really spent, no window admits more than burst + rate × window. The time of day on a node
//! does not matter, because reports carry spans. Drift within the margin adds nothing: a node always stops before its lease expires at
//! the broker, and never reports a spend as earlier than it was.

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LeasedBucket};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};

use super::super::harness::{assert_caught, assert_holds};
use super::simulation::{Broker, INTERVAL, Move, Nodes, Turn, conforms, turns};
use super::wrong_broker::{Mistake, WrongBroker};

struct RealBroker(TokenBucket, LeasedBucket);

impl Broker for RealBroker {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        self.1.decide(&self.0, now, cost).is_admitted()
    }

    fn grant(&mut self, now: Timestamp, spec: &LeaseSpec) -> u64 {
        self.1.grant(&self.0, now, spec)
    }

    fn apply_report(&mut self, now: Timestamp, report: &LeaseReport) {
        self.1.apply_report(&self.0, now, report);
    }
}

const CORRECT_NODES: Nodes = Nodes {
    behind: 0,
    drift: 0,
    counts_from_the_reply: false,
    backdates: 0,
};

fn real(burst: u64, block: u64) -> RealBroker {
    let rate = Rate::new(block, Nanos::from_nanos(INTERVAL));
    let builder = TokenBucket::builder(rate).burst(burst * block).block(block);
    RealBroker(builder.build().unwrap(), LeasedBucket::default())
}

fn inputs() -> impl Strategy<Value = ((u64, u64), Vec<Turn>)> {
    (
        (1_u64..12, prop_oneof![2 => Just(1_u64), 1 => 1_u64..5]),
        turns(),
    )
}

#[test]
fn i01_leases_and_the_bucket_together_never_exceed_the_quota() {
    assert_holds(&inputs(), |(quota, turns)| {
        conforms(real(quota.0, quota.1), quota, CORRECT_NODES, &turns)
    });
}

#[test]
fn i01_clocks_that_differ_and_drift_add_nothing() {
    assert_holds(
        &(inputs(), 0_u64..5_000, 0_u64..4),
        |((quota, turns), behind, drift)| {
            let nodes = Nodes {
                behind,
                drift,
                ..CORRECT_NODES
            };
            conforms(real(quota.0, quota.1), quota, nodes, &turns)
        },
    );
}

#[test]
fn control_every_wrong_broker_is_caught() {
    // First without a mistake: the controls differ from this broker by their mistake alone.
    assert_holds(&inputs(), |(quota, turns)| {
        conforms(
            WrongBroker::new(Mistake::None, quota),
            quota,
            CORRECT_NODES,
            &turns,
        )
    });
    for mistake in [
        Mistake::CapacityNotShrunk,
        Mistake::ForgetsExpired,
        Mistake::ReturnForgives,
        Mistake::ReportsCountFromTheGrant,
    ] {
        assert_caught(&inputs(), |(quota, turns)| {
            conforms(
                WrongBroker::new(mistake, quota),
                quota,
                CORRECT_NODES,
                &turns,
            )
        });
    }
}

/// These cases are too rare to be generated, so they are written out.
#[test]
fn control_brokers_that_are_wrong_in_rare_cases_are_caught() {
    let turn = |what| Turn {
        advance: 0,
        what,
        request_delay: 0,
        reply_delay: 0,
        is_lost: false,
        is_repeated: true,
    };
    // One unit of a block of four is reported, and refill replaces the block. The other three are spent just before the lease expires,
    // together with a whole block at the broker.
    let parts = [
        Move::Request { node: 0, units: 4 },
        Move::Spend { node: 0, cost: 1 },
        Move::Report(0),
        Move::SpendAtTheLastMoment(0),
        Move::Decide(4),
    ];
    // One of two units is reported twice; the other is spent late, together with what has refilled at the broker.
    let twice = [
        Move::Request { node: 0, units: 2 },
        Move::Spend { node: 0, cost: 1 },
        Move::Report(0),
        Move::SpendAtTheLastMoment(0),
        Move::Decide(2),
    ];
    for (mistake, quota, scenario) in [
        (Mistake::PartIsABlock, (1, 4), parts),
        (Mistake::ReportsAddUp, (2, 1), twice),
    ] {
        let scenario = scenario.map(turn);
        assert!(conforms(real(quota.0, quota.1), quota, CORRECT_NODES, &scenario).is_ok());
        let wrong = WrongBroker::new(mistake, quota);
        assert!(conforms(wrong, quota, CORRECT_NODES, &scenario).is_err());
    }
}

#[test]
fn control_a_node_that_counts_from_the_reply_is_caught() {
    assert_caught(&inputs(), |(quota, turns)| {
        let nodes = Nodes {
            counts_from_the_reply: true,
            ..CORRECT_NODES
        };
        conforms(real(quota.0, quota.1), quota, nodes, &turns)
    });
}

#[test]
fn control_a_node_that_backdates_its_spending_is_caught() {
    assert_caught(&inputs(), |(quota, turns)| {
        let nodes = Nodes {
            backdates: INTERVAL,
            ..CORRECT_NODES
        };
        conforms(real(quota.0, quota.1), quota, nodes, &turns)
    });
}
