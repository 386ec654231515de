//! Reservations against a naive ledger that drops nothing (I-02): each reservation changes its charge at most once, even if calls are
//! repeated, late or unknown.

use proptest::prelude::*;
use tollgate_core::reservation::{
    Correction, ReservationId, ReservationLedger, ReservationOptions, ReservationStatus,
};
use tollgate_core::{Nanos, Receipt};
use tollgate_testkit::oracle::{NaiveCorrection, NaiveLedger};

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{at, bucket};

const HOLD: u64 = 100;
const RETENTION: u64 = 50;
const MAX_RECORDS: usize = 4;

#[derive(Clone, Copy, Debug)]
enum Move {
    Reserve(u128, u64),
    Settle(u128, u64),
    Cancel(u128),
}

type Moves = Vec<(u64, Move)>;

fn moves() -> impl Strategy<Value = Moves> {
    let id = || 0_u128..6;
    let what = prop_oneof![
        3 => (id(), 0_u64..20).prop_map(|(id, cost)| Move::Reserve(id, cost)),
        2 => (id(), 0_u64..20).prop_map(|(id, actual)| Move::Settle(id, actual)),
        2 => id().prop_map(Move::Cancel),
    ];
    let time = prop_oneof![3 => 0_u64..10, 2 => 0_u64..60, 1 => Just(HOLD), 1 => 0_u64..200];
    prop::collection::vec((time, what), 1..60)
}

/// A ledger under test, with the replies of the naive one.
trait Ledger {
    /// `None` if the reservation was recorded, its cost if the id was known, `Some(None)` if the ledger was full.
    fn reserve(&mut self, now: u64, id: u128, cost: u64) -> Option<Option<u64>>;
    fn close(&mut self, now: u64, id: u128, actual: Option<u64>) -> NaiveCorrection;
}

struct RealLedger(ReservationLedger, ReservationOptions);

impl RealLedger {
    fn new() -> Self {
        let options = ReservationOptions {
            hold: Nanos::from_nanos(HOLD),
            retention: Nanos::from_nanos(RETENTION),
            max_records: MAX_RECORDS,
        };
        Self(ReservationLedger::default(), options)
    }
}

impl Ledger for RealLedger {
    fn reserve(&mut self, now: u64, id: u128, cost: u64) -> Option<Option<u64>> {
        match self.0.status(at(now), &self.1, ReservationId(id)) {
            ReservationStatus::Known(receipt) => Some(Some(receipt.cost)),
            ReservationStatus::Full => Some(None),
            ReservationStatus::Fresh => {
                let receipt = Receipt {
                    cost,
                    at: at(now),
                    mark: 0,
                };
                self.0.open(at(now), &self.1, ReservationId(id), receipt);
                None
            }
        }
    }

    fn close(&mut self, now: u64, id: u128, actual: Option<u64>) -> NaiveCorrection {
        let (now, id) = (at(now), ReservationId(id));
        let correction = match actual {
            Some(actual) => self.0.settle(now, &self.1, id, actual),
            None => self.0.cancel(now, &self.1, id),
        };
        match correction {
            Correction::Settle { actual, .. } => NaiveCorrection::Becomes(actual),
            Correction::AlreadyClosed => NaiveCorrection::AlreadyClosed,
            Correction::Expired => NaiveCorrection::Expired,
            Correction::Unknown => NaiveCorrection::Unknown,
        }
    }
}

fn replies_like_the_naive_ledger(mut ledger: impl Ledger, moves: &Moves) -> CheckResult {
    let mut naive = NaiveLedger::new(HOLD, RETENTION);
    let mut now = 1_000;
    for (time, what) in moves {
        now += time;
        match *what {
            Move::Reserve(id, cost) => {
                let expected = match naive.known(now, id) {
                    Some(cost) => Some(Some(cost)),
                    None if naive.remembered(now) >= MAX_RECORDS => Some(None),
                    None => {
                        naive.open(now, id, cost);
                        None
                    }
                };
                let reply = ledger.reserve(now, id, cost);
                ensure!(reply == expected, "{what:?}: {reply:?}, not {expected:?}");
            }
            Move::Settle(id, actual) => {
                let expected = naive.close(now, id, Some(actual));
                let reply = ledger.close(now, id, Some(actual));
                ensure!(reply == expected, "{what:?}: {reply:?}, not {expected:?}");
            }
            Move::Cancel(id) => {
                let expected = naive.close(now, id, None);
                let reply = ledger.close(now, id, None);
                ensure!(reply == expected, "{what:?}: {reply:?}, not {expected:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn i02_a_reservation_is_corrected_at_most_once_even_if_calls_repeat() {
    assert_holds(&moves(), |moves| {
        replies_like_the_naive_ledger(RealLedger::new(), &moves)
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// The record stays open, so a retried settle corrects twice.
    SettlesTwice,
    /// The record is dropped when closed, so a retried reserve charges twice.
    DropsWhenClosed,
    /// An expired reservation can still be cancelled.
    NeverExpires,
}

struct WrongLedger(Mistake, NaiveLedger);

impl Ledger for WrongLedger {
    fn reserve(&mut self, now: u64, id: u128, cost: u64) -> Option<Option<u64>> {
        if let Some(cost) = self.1.known(now, id) {
            return Some(Some(cost));
        }
        if self.1.remembered(now) >= MAX_RECORDS {
            return Some(None);
        }
        self.1.open(now, id, cost);
        None
    }

    fn close(&mut self, now: u64, id: u128, actual: Option<u64>) -> NaiveCorrection {
        let mut before = self.1.clone();
        let reply = self.1.close(now, id, actual);
        match (self.0, reply) {
            (Mistake::SettlesTwice, NaiveCorrection::Becomes(_)) => self.1 = before,
            (Mistake::DropsWhenClosed, NaiveCorrection::AlreadyClosed) => {
                return NaiveCorrection::Unknown;
            }
            (Mistake::NeverExpires, NaiveCorrection::Expired) => {
                before.close(now, id, Some(0));
                return NaiveCorrection::Becomes(0);
            }
            _ => {}
        }
        reply
    }
}

#[test]
fn control_a_ledger_that_corrects_twice_or_forgets_is_caught() {
    for mistake in [
        Mistake::SettlesTwice,
        Mistake::DropsWhenClosed,
        Mistake::NeverExpires,
    ] {
        assert_caught(&moves(), |moves| {
            replies_like_the_naive_ledger(
                WrongLedger(mistake, NaiveLedger::new(HOLD, RETENTION)),
                &moves,
            )
        });
    }
}

/// Making every call twice leaves the bucket as making it once.
#[test]
fn i02_repeating_every_call_leaves_the_bucket_as_calling_once() {
    assert_holds(&moves(), |moves| {
        let quota = bucket(7, 40);
        let run = |repeats: usize| {
            let (mut ledger, mut tat, mut now) = (RealLedger::new(), 0, 1_000);
            for (time, what) in &moves {
                now += time;
                for _ in 0..repeats {
                    let correction = match *what {
                        Move::Reserve(id, cost) => {
                            let id = ReservationId(id);
                            if ledger.0.status(at(now), &ledger.1, id) == ReservationStatus::Fresh {
                                let charged = quota.decide(tat, at(now), cost);
                                tat = charged.next.unwrap_or(tat);
                                ledger.0.open(at(now), &ledger.1, id, charged.receipt);
                            }
                            continue;
                        }
                        Move::Settle(id, actual) => {
                            ledger
                                .0
                                .settle(at(now), &ledger.1, ReservationId(id), actual)
                        }
                        Move::Cancel(id) => ledger.0.cancel(at(now), &ledger.1, ReservationId(id)),
                    };
                    if let Correction::Settle { receipt, actual } = correction {
                        let settled = quota.settle(tat, at(now), &receipt, actual);
                        tat = settled.next.unwrap_or(tat);
                    }
                }
            }
            tat
        };
        let (once, twice) = (run(1), run(2));
        ensure!(once == twice, "{once} once, {twice} twice");
        Ok(())
    });
}
