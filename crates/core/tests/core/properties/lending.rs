//! Lending as a simulation (I-01): one book, several nodes with slices, a network that delays, reorders, repeats and loses,
//! nodes that die, clocks that differ and drift. Whatever is spent anywhere must conform to the quota in every window.
//!
//! Precisely: counting every unit when it was really spent, no window admits more than burst + rate × window. What time it is
//! on a node does not matter, because reports carry spans; drift within the margin adds nothing, because a node always
//! stops before the lender has written its slice off, and never says that it spent earlier than it did.

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LeasedBucket};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};

use super::harness::{caught, holds};
use super::lending_simulation::{INTERVAL, Lender, Move, Nodes, Turn, conforms, turns};
use super::lending_wrong::{Mistake, WrongBook};

struct Real(TokenBucket, LeasedBucket);

impl Lender for Real {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        self.1.decide(&self.0, now, cost).is_admitted()
    }

    fn lend(&mut self, now: Timestamp, want: &LeaseSpec) -> u64 {
        self.1.grant(&self.0, now, want)
    }

    fn report(&mut self, now: Timestamp, report: &LeaseReport) {
        self.1.apply_report(&self.0, now, report);
    }
}

const AGREEING: Nodes = Nodes {
    behind: 0,
    drift: 0,
    counts_from_the_answer: false,
    backdates: 0,
};

fn real(burst: u64, block: u64) -> Real {
    let rate = Rate::new(block, Nanos::from_nanos(INTERVAL));
    let builder = TokenBucket::builder(rate).burst(burst * block).block(block);
    Real(builder.build().unwrap(), LeasedBucket::default())
}

fn inputs() -> impl Strategy<Value = ((u64, u64), Vec<Turn>)> {
    (
        (1_u64..12, prop_oneof![2 => Just(1_u64), 1 => 1_u64..5]),
        turns(),
    )
}

#[test]
fn i01_slices_and_the_book_together_never_exceed_the_quota() {
    holds(&inputs(), |(quota, turns)| {
        conforms(real(quota.0, quota.1), quota, AGREEING, &turns)
    });
}

#[test]
fn i01_clocks_that_differ_and_drift_add_nothing() {
    holds(
        &(inputs(), 0_u64..5_000, 0_u64..4),
        |((quota, turns), behind, drift)| {
            let nodes = Nodes {
                behind,
                drift,
                ..AGREEING
            };
            conforms(real(quota.0, quota.1), quota, nodes, &turns)
        },
    );
}

#[test]
fn control_every_wrong_lender_is_caught() {
    // Right by construction first: the controls differ from it by their mistake alone.
    holds(&inputs(), |(quota, turns)| {
        conforms(
            WrongBook::new(Mistake::None, quota),
            quota,
            AGREEING,
            &turns,
        )
    });
    for mistake in [
        Mistake::CapacityNotShrunk,
        Mistake::ForgetsExpired,
        Mistake::ReturnForgives,
        Mistake::ReportsCountFromTheGrant,
    ] {
        caught(&inputs(), |(quota, turns)| {
            conforms(WrongBook::new(mistake, quota), quota, AGREEING, &turns)
        });
    }
}

/// Rare enough to be told as stories rather than generated.
#[test]
fn control_lenders_that_are_wrong_in_rare_cases_are_caught() {
    let turn = |what| Turn {
        advance: 0,
        what,
        there: 0,
        back: 0,
        is_lost: false,
        is_repeated: true,
    };
    // One unit of a block of four is reported, refill replaces the block, and the other three are spent at the end of the
    // slice's life together with a whole block at the lender.
    let parts = [
        Move::Ask { node: 0, want: 4 },
        Move::Spend { node: 0, cost: 1 },
        Move::Report(0),
        Move::SpendAtTheLastMoment(0),
        Move::Decide(4),
    ];
    // One of two units is reported twice; the other is spent late, together with what has refilled at the lender.
    let twice = [
        Move::Ask { node: 0, want: 2 },
        Move::Spend { node: 0, cost: 1 },
        Move::Report(0),
        Move::SpendAtTheLastMoment(0),
        Move::Decide(2),
    ];
    for (mistake, quota, story) in [
        (Mistake::PartIsABlock, (1, 4), parts),
        (Mistake::ReportsAddUp, (2, 1), twice),
    ] {
        let story = story.map(turn);
        assert!(conforms(real(quota.0, quota.1), quota, AGREEING, &story).is_ok());
        let wrong = WrongBook::new(mistake, quota);
        assert!(conforms(wrong, quota, AGREEING, &story).is_err());
    }
}

#[test]
fn control_a_borrower_that_counts_from_the_answer_is_caught() {
    caught(&inputs(), |(quota, turns)| {
        let nodes = Nodes {
            counts_from_the_answer: true,
            ..AGREEING
        };
        conforms(real(quota.0, quota.1), quota, nodes, &turns)
    });
}

#[test]
fn control_a_borrower_that_says_it_spent_earlier_is_caught() {
    caught(&inputs(), |(quota, turns)| {
        let nodes = Nodes {
            backdates: INTERVAL,
            ..AGREEING
        };
        conforms(real(quota.0, quota.1), quota, nodes, &turns)
    });
}
