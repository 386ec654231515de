//! Lending as a simulation (I-01): one book, several nodes with slices, a network that delays, reorders and loses, nodes
//! that die, clocks that drift. Whatever is spent anywhere must conform to the quota in every window.
//!
//! Precisely: counting every unit when it was really spent, no window admits more than burst + rate × window, and beyond
//! that, once, what refills in the time by which a node's clock is behind the lender's when it says when it spent (nothing,
//! if clocks agree). Drift within the margin adds nothing: a node always stops before the lender has written its slice off.

use proptest::prelude::*;
use tollgate_core::lending::{Book, LoanId};
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};

use super::harness::{caught, holds};
use super::lending_simulation::{INTERVAL, Lender, Move, Nodes, Turn, conforms, turns};
use super::lending_wrong::{Mistake, WrongBook};

struct Real(TokenBucket, Book);

impl Lender for Real {
    fn decide(&mut self, now: Timestamp, cost: u64) -> bool {
        self.1.decide(&self.0, now, cost).is_admitted()
    }

    fn lend(&mut self, now: Timestamp, id: LoanId, want: u64, life: Nanos) -> u64 {
        self.1.lend(&self.0, now, id, want, life)
    }

    fn report(&mut self, now: Timestamp, id: LoanId, spent: u64, at: Timestamp) {
        self.1.report(&self.0, now, id, spent, at);
    }

    fn give_back(&mut self, now: Timestamp, id: LoanId, unconfirmed: u64) {
        self.1.give_back(&self.0, now, id, unconfirmed);
    }
}

const AGREEING: Nodes = Nodes {
    behind: 0,
    drift: 0,
    counts_from_the_answer: false,
};

fn real(burst: u64, block: u64) -> Real {
    let rate = Rate::new(block, Nanos::from_nanos(INTERVAL));
    let builder = TokenBucket::at(rate).burst(burst * block).block(block);
    Real(builder.build().unwrap(), Book::default())
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
fn i01_clocks_behind_the_lenders_add_at_most_what_refills_in_that_time() {
    holds(
        &(inputs(), 0_u64..5_000, 0_u64..4),
        |((quota, turns), behind, drift)| {
            let nodes = Nodes {
                behind,
                drift,
                counts_from_the_answer: false,
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

/// One unit of a block of four is reported, refill replaces the block, and the other three are spent at the end of the
/// slice's life together with a whole block at the lender. Rare enough to be told as a story rather than generated.
#[test]
fn control_a_part_of_a_block_charged_as_a_block_is_caught() {
    let turn = |what| Turn {
        advance: 0,
        what,
        there: 0,
        back: 0,
        is_lost: false,
    };
    let story = [
        Move::Ask { node: 0, want: 4 },
        Move::Spend { node: 0, cost: 1 },
        Move::Report(0),
        Move::SpendAtTheLastMoment(0),
        Move::Decide(4),
    ];
    let story = story.map(turn);
    let quota = (1, 4);
    assert!(conforms(real(1, 4), quota, AGREEING, &story).is_ok());
    let wrong = WrongBook::new(Mistake::PartIsABlock, quota);
    assert!(conforms(wrong, quota, AGREEING, &story).is_err());
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
