//! A book with slices out is a limiter like any other: the same promises hold of it, and it is as new exactly when it
//! says (I-03, I-12).

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LeasedBucket, QuotaLeaseId};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp, TokenBucket};

use super::harness::{Checked, caught, ensure, holds};
use super::promises::all;
use super::subject::{Subject, at, bucket, interval};

const BEGIN: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct Lending {
    quota: TokenBucket,
    book: LeasedBucket,
    /// Says when it is as new from its own debt alone, as if slices that are out were nothing.
    forgets_slices: bool,
}

impl Subject for Lending {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        self.book.decide(&self.quota, now, cost)
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let mut status = self.book.status(&self.quota, now);
        if self.forgets_slices {
            let left = status.limit - status.remaining;
            let debt = left * self.quota.interval().as_nanos();
            status.reset_after = status.reset_after.min(Nanos::from_nanos(debt));
        }
        status
    }
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Decide(u64),
    Lend(u128, u64, u64),
    Report(u128, u64, u64, bool),
}

/// Times and lives in hundredths of an interval.
type Moves = Vec<(u64, Move)>;

fn moves() -> impl Strategy<Value = Moves> {
    let id = || 0_u128..5;
    let what = prop_oneof![
        4 => (0_u64..12).prop_map(Move::Decide),
        4 => (id(), 1_u64..8, 0_u64..900).prop_map(|(id, want, life)| Move::Lend(id, want, life)),
        3 => (id(), 0_u64..8, 0_u64..400, prop::bool::weighted(0.3))
            .prop_map(|(id, spent, ago, is_last)| Move::Report(id, spent, ago, is_last)),
    ];
    let time = prop_oneof![3 => Just(0), 3 => 0_u64..200, 1 => 0_u64..2_000];
    prop::collection::vec((time, what), 1..30)
}

/// A book is as new at the instant it says, and not a nanosecond earlier.
fn is_as_new_when_it_says(lending: &Lending, says: u64, now: Timestamp) -> Checked {
    let fresh = Lending {
        book: LeasedBucket::default(),
        ..lending.clone()
    };
    let then = at(says).max(now);
    ensure!(
        lending.status(then) == fresh.status(then),
        "not as new at {says}"
    );
    let all = lending.quota.limit();
    let all_at_once = lending.clone().spend(then, all);
    ensure!(
        all_at_once.is_admitted(),
        "as new, but {all} got {all_at_once:?}"
    );
    if says > now.as_nanos() {
        let early = at(says - 1);
        let status = lending.book.status(&lending.quota, early);
        ensure!(
            status != fresh.book.status(&fresh.quota, early),
            "as new before {says}"
        );
    }
    Ok(())
}

fn keeps_promises(mut lending: Lending, moves: &Moves, says: impl Fn(&Lending) -> u64) -> Checked {
    let scale = lending.quota.interval().as_nanos();
    let mut now = BEGIN;
    for (time, what) in moves {
        now += time * scale / 100;
        let (quota, clock) = (lending.quota, at(now));
        let asked = match *what {
            Move::Decide(cost) => cost,
            _ => 1,
        };
        for promise in all() {
            promise(&lending, clock, asked)?;
        }
        is_as_new_when_it_says(&lending, says(&lending), clock)?;
        match *what {
            Move::Decide(cost) => {
                lending.book.decide(&quota, clock, cost);
            }
            Move::Lend(id, most, life) => {
                let want = LeaseSpec {
                    id: QuotaLeaseId(id),
                    min_units: 1,
                    max_units: most,
                    duration: Nanos::from_nanos(life * scale / 100),
                };
                lending.book.grant(&quota, clock, &want);
            }
            Move::Report(id, spent, ago, is_last) => {
                let report = LeaseReport {
                    id: QuotaLeaseId(id),
                    spent,
                    last_spend_age: Nanos::from_nanos(ago * scale / 100),
                    is_last,
                };
                lending.book.apply_report(&quota, clock, &report);
            }
        }
    }
    Ok(())
}

fn lendings() -> impl Strategy<Value = Lending> {
    (interval(), 1_u64..12).prop_map(|(interval, burst)| Lending {
        quota: bucket(interval.max(100), burst),
        book: LeasedBucket::default(),
        forgets_slices: false,
    })
}

#[test]
fn i03_i12_a_book_with_slices_out_keeps_every_promise_and_is_as_new_when_it_says() {
    holds(&(lendings(), moves()), |(lending, moves)| {
        let says = |lending: &Lending| lending.book.reset_at(&lending.quota);
        keeps_promises(lending, &moves, says)
    });
}

#[test]
fn control_a_book_forgotten_when_its_last_slice_expires_is_caught() {
    caught(&(lendings(), moves()), |(lending, moves)| {
        let says = |lending: &Lending| {
            let last = lending.book.leases().last();
            last.map_or(0, |loan| loan.expires.as_nanos())
        };
        keeps_promises(lending, &moves, says)
    });
}

#[test]
fn control_a_reset_that_ignores_slices_is_caught() {
    caught(&(lendings(), moves()), |(mut lending, moves)| {
        lending.forgets_slices = true;
        let says = |lending: &Lending| lending.book.reset_at(&lending.quota);
        keeps_promises(lending, &moves, says)
    });
}
