//! Concurrency against a plain list of holders (I-14): the places held never exceed the limit, a lost holder's places are free when its
//! lease expires, and the weights always add up.

use proptest::prelude::*;
use tollgate_core::concurrency::{LeaseEdit, LeaseId, LeaseSet};
use tollgate_core::{Concurrency, Nanos, Timestamp, Transition};
use tollgate_testkit::oracle::LeaseHolders;

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::at;

#[derive(Clone, Copy, Debug)]
enum Move {
    Acquire(u128, u64),
    Renew(u128),
    Release(u128),
}

type Moves = Vec<(u64, Move)>;

/// A handful of ids, so that they repeat. Times are in hundredths of a lease.
fn moves() -> impl Strategy<Value = Moves> {
    let id = || 0_u128..6;
    let what = prop_oneof![
        5 => (id(), 0_u64..5).prop_map(|(id, weight)| Move::Acquire(id, weight)),
        2 => id().prop_map(Move::Renew),
        2 => id().prop_map(Move::Release),
    ];
    let time = prop_oneof![3 => Just(0), 4 => 0_u64..60, 1 => Just(100), 1 => 0_u64..300];
    prop::collection::vec((time, what), 1..60)
}

/// A concurrency limit under test.
trait ConcurrencyLimiter {
    fn acquire(&mut self, now: u64, id: u128, weight: u64) -> bool;
    fn renew(&mut self, now: u64, id: u128) -> bool;
    fn release(&mut self, now: u64, id: u128);
    /// Free places.
    fn free(&self, now: u64) -> u64;
}

struct RealConcurrency(Concurrency, LeaseSet);

impl RealConcurrency {
    fn new(limit: u64, lease: u64) -> Self {
        let quota = Concurrency::new(limit, Nanos::from_nanos(lease)).unwrap();
        Self(quota, LeaseSet::default())
    }

    fn apply(&mut self, transition: &Transition<LeaseEdit>) -> bool {
        if let Some(edit) = transition.next {
            self.1.apply(edit);
        }
        transition.outcome.is_admitted()
    }
}

impl ConcurrencyLimiter for RealConcurrency {
    fn acquire(&mut self, now: u64, id: u128, weight: u64) -> bool {
        let transition = self.0.acquire(&self.1, at(now), LeaseId(id), weight);
        self.apply(&transition)
    }

    fn renew(&mut self, now: u64, id: u128) -> bool {
        let renewed = self.0.renew(&self.1, at(now), LeaseId(id));
        renewed.is_some_and(|transition| self.apply(&transition))
    }

    fn release(&mut self, now: u64, id: u128) {
        let transition = self.0.release(&self.1, at(now), LeaseId(id));
        self.apply(&transition);
    }

    fn free(&self, now: u64) -> u64 {
        self.0.status(&self.1, at(now)).remaining
    }
}

/// Every reply equals that of the list of holders, and so do the free places after it and after all leases have expired.
fn holds_like_the_list(
    mut subject: impl ConcurrencyLimiter,
    (limit, lease): (u64, u64),
    moves: &Moves,
) -> CheckResult {
    let mut list = LeaseHolders::new(limit, lease);
    let mut now = 1_700_000_000_000_000_000;
    for (time, what) in moves {
        now += time * lease / 100;
        let (reply, expected) = match *what {
            Move::Acquire(id, weight) => (
                subject.acquire(now, id, weight),
                list.acquire(now, id, weight),
            ),
            Move::Renew(id) => (subject.renew(now, id), list.renew(now, id)),
            Move::Release(id) => {
                subject.release(now, id);
                list.release(id);
                (true, true)
            }
        };
        ensure!(reply == expected, "{what:?} returned {reply}");
        let in_use = list.in_use(now);
        ensure!(in_use <= limit, "{in_use} held of {limit}");
        ensure!(
            subject.free(now) == limit - in_use,
            "{} free",
            subject.free(now)
        );
    }
    ensure!(
        subject.free(now + lease) == limit,
        "a lost holder kept its place"
    );
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    (0_u64..8, prop_oneof![100_u64..1_000, Just(30_000_000_000)])
}

#[test]
fn i14_leases_are_held_like_the_list_of_holders() {
    assert_holds(&(quotas(), moves()), |(quota, moves)| {
        holds_like_the_list(RealConcurrency::new(quota.0, quota.1), quota, &moves)
    });
}

#[test]
fn i14_the_weights_of_all_leases_add_up_and_stay_within_the_limit() {
    assert_holds(&(quotas(), moves()), |((limit, lease), moves)| {
        let mut real = RealConcurrency::new(limit, lease);
        let mut now = 1_700_000_000_000_000_000;
        for (time, what) in moves {
            now += time * lease / 100;
            match what {
                Move::Acquire(id, weight) => {
                    real.acquire(now, id, weight);
                }
                Move::Renew(id) => {
                    real.renew(now, id);
                }
                Move::Release(id) => real.release(now, id),
            }
            let live = real.1.iter().filter(|lease| lease.expires > now);
            let sum: u64 = live.map(|lease| lease.weight).sum();
            ensure!(sum <= limit, "{sum} held of {limit}");
            ensure!(real.free(now) == limit - sum, "the total is not the sum");
            let latest = Timestamp::from_nanos(now).after(Nanos::from_nanos(lease));
            let is_bounded = real.1.iter().all(|one| one.expires <= latest.as_nanos());
            ensure!(is_bounded, "a lease outlives its length");
        }
        Ok(())
    });
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// A counter without leases: a lost holder keeps its place for ever.
    NeverExpires,
    /// Acquiring again under a held id takes a second place.
    CountsAnIdTwice,
    /// A release of an id that is not held lowers the count all the same, as a `DECR`.
    ReleasesUnheld,
    /// An expired lease can be renewed although its place was given away.
    RenewsExpired,
}

/// A limiter with one mistake. Its leases are id, weight and end.
struct WrongConcurrency {
    mistake: Mistake,
    limit: u64,
    lease: u64,
    held: Vec<(u128, u64, u64)>,
    /// Releases of places that no lease held.
    phantom: u64,
}

impl WrongConcurrency {
    fn used(&self, now: u64) -> u64 {
        let never = self.mistake == Mistake::NeverExpires;
        let live = self.held.iter().filter(|held| never || held.2 > now);
        live.map(|held| held.1)
            .sum::<u64>()
            .saturating_sub(self.phantom)
    }
}

impl ConcurrencyLimiter for WrongConcurrency {
    fn acquire(&mut self, now: u64, id: u128, weight: u64) -> bool {
        let is_held = self.held.iter().any(|held| held.0 == id && held.2 > now);
        if weight > self.limit {
            return false;
        }
        if weight == 0 || (is_held && self.mistake != Mistake::CountsAnIdTwice) {
            return true;
        }
        let fits = self.used(now) + weight <= self.limit;
        if fits {
            self.held.push((id, weight, now + self.lease));
        }
        fits
    }

    fn renew(&mut self, now: u64, id: u128) -> bool {
        let dead = self.mistake == Mistake::RenewsExpired;
        let (mut held, until) = (self.held.iter_mut(), now + self.lease);
        let found = held.find(|held| held.0 == id && (dead || held.2 > now));
        found.map(|held| held.2 = until).is_some()
    }

    fn release(&mut self, now: u64, id: u128) {
        let is_held = self.held.iter().any(|held| held.0 == id && held.2 > now);
        if !is_held && self.mistake == Mistake::ReleasesUnheld {
            self.phantom += 1;
        }
        self.held.retain(|held| held.0 != id);
    }

    fn free(&self, now: u64) -> u64 {
        self.limit.saturating_sub(self.used(now))
    }
}

#[test]
fn control_every_wrong_concurrency_limiter_is_caught() {
    for mistake in [
        Mistake::NeverExpires,
        Mistake::CountsAnIdTwice,
        Mistake::ReleasesUnheld,
        Mistake::RenewsExpired,
    ] {
        assert_caught(&(quotas(), moves()), |(quota, moves)| {
            let wrong = WrongConcurrency {
                mistake,
                limit: quota.0,
                lease: quota.1,
                held: Vec::new(),
                phantom: 0,
            };
            holds_like_the_list(wrong, quota, &moves)
        });
    }
}
