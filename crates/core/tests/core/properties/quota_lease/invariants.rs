//! A leased bucket keeps the same invariants as every limiter, and it is as new exactly at its reset (I-03, I-12).

use proptest::prelude::*;
use tollgate_core::quota_lease::{LeaseReport, LeaseSpec, LeasedBucket, QuotaLeaseId};
use tollgate_core::{Nanos, Outcome, QuotaStatus, Timestamp, TokenBucket};

use super::super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::super::invariants::all_invariants;
use super::super::subject::{self, Subject, at, interval};

const BEGIN: u64 = 1_700_000_000_000_000_000;

#[derive(Clone, Debug, PartialEq)]
struct LeasedLimiter {
    quota: TokenBucket,
    bucket: LeasedBucket,
    /// Computes the reset from its own debt alone and ignores outstanding leases.
    ignores_leases: bool,
}

impl Subject for LeasedLimiter {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        self.bucket.decide(&self.quota, now, cost)
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let mut status = self.bucket.status(&self.quota, now);
        if self.ignores_leases {
            let used = status.limit - status.remaining;
            let debt = used * self.quota.interval().as_nanos();
            status.reset_after = status.reset_after.min(Nanos::from_nanos(debt));
        }
        status
    }
}

#[derive(Clone, Copy, Debug)]
enum Move {
    Decide(u64),
    Grant(u128, u64, u64),
    Report(u128, u64, u64, bool),
}

/// Times and durations in hundredths of an interval.
type Moves = Vec<(u64, Move)>;

fn moves() -> impl Strategy<Value = Moves> {
    let id = || 0_u128..5;
    let what = prop_oneof![
        4 => (0_u64..12).prop_map(Move::Decide),
        4 => (id(), 1_u64..8, 0_u64..900).prop_map(|(id, units, duration)| Move::Grant(id, units, duration)),
        3 => (id(), 0_u64..8, 0_u64..400, prop::bool::weighted(0.3))
            .prop_map(|(id, spent, age, is_last)| Move::Report(id, spent, age, is_last)),
    ];
    let time = prop_oneof![3 => Just(0), 3 => 0_u64..200, 1 => 0_u64..2_000];
    prop::collection::vec((time, what), 1..30)
}

/// A leased bucket is as new at its reset, and not a nanosecond earlier.
fn is_as_new_at_its_reset(limiter: &LeasedLimiter, reset_at: u64, now: Timestamp) -> CheckResult {
    let fresh = LeasedLimiter {
        bucket: LeasedBucket::default(),
        ..limiter.clone()
    };
    let then = at(reset_at).max(now);
    ensure!(
        limiter.status(then) == fresh.status(then),
        "not as new at {reset_at}"
    );
    let all = limiter.quota.limit();
    let all_at_once = limiter.clone().spend(then, all);
    ensure!(
        all_at_once.is_admitted(),
        "as new, but {all} got {all_at_once:?}"
    );
    if reset_at > now.as_nanos() {
        let early = at(reset_at - 1);
        let status = limiter.bucket.status(&limiter.quota, early);
        ensure!(
            status != fresh.bucket.status(&fresh.quota, early),
            "as new before {reset_at}"
        );
    }
    Ok(())
}

fn keeps_invariants(
    mut limiter: LeasedLimiter,
    moves: &Moves,
    reset_at: impl Fn(&LeasedLimiter) -> u64,
) -> CheckResult {
    let scale = limiter.quota.interval().as_nanos();
    let mut now = BEGIN;
    for (time, what) in moves {
        now += time * scale / 100;
        let (quota, clock) = (limiter.quota, at(now));
        let cost = match *what {
            Move::Decide(cost) => cost,
            _ => 1,
        };
        for invariant in all_invariants() {
            invariant(&limiter, clock, cost)?;
        }
        is_as_new_at_its_reset(&limiter, reset_at(&limiter), clock)?;
        match *what {
            Move::Decide(cost) => {
                limiter.bucket.decide(&quota, clock, cost);
            }
            Move::Grant(id, units, duration) => {
                let spec = LeaseSpec {
                    id: QuotaLeaseId(id),
                    min_units: 1,
                    max_units: units,
                    duration: Nanos::from_nanos(duration * scale / 100),
                };
                limiter.bucket.grant(&quota, clock, &spec);
            }
            Move::Report(id, spent, age, is_last) => {
                let report = LeaseReport {
                    id: QuotaLeaseId(id),
                    spent,
                    last_spend_age: Nanos::from_nanos(age * scale / 100),
                    is_last,
                };
                limiter.bucket.apply_report(&quota, clock, &report);
            }
        }
    }
    Ok(())
}

fn leased_limiters() -> impl Strategy<Value = LeasedLimiter> {
    (interval(), 1_u64..12).prop_map(|(interval, burst)| LeasedLimiter {
        quota: subject::bucket(interval.max(100), burst),
        bucket: LeasedBucket::default(),
        ignores_leases: false,
    })
}

#[test]
fn i03_i12_a_leased_bucket_keeps_every_invariant_and_is_as_new_at_its_reset() {
    assert_holds(&(leased_limiters(), moves()), |(limiter, moves)| {
        let reset_at = |limiter: &LeasedLimiter| limiter.bucket.reset_at(&limiter.quota);
        keeps_invariants(limiter, &moves, reset_at)
    });
}

#[test]
fn control_a_leased_bucket_reset_at_its_last_expiry_is_caught() {
    assert_caught(&(leased_limiters(), moves()), |(limiter, moves)| {
        let reset_at = |limiter: &LeasedLimiter| {
            let last = limiter.bucket.leases().last();
            last.map_or(0, |lease| lease.expires.as_nanos())
        };
        keeps_invariants(limiter, &moves, reset_at)
    });
}

#[test]
fn control_a_reset_that_ignores_leases_is_caught() {
    assert_caught(&(leased_limiters(), moves()), |(mut limiter, moves)| {
        limiter.ignores_leases = true;
        let reset_at = |limiter: &LeasedLimiter| limiter.bucket.reset_at(&limiter.quota);
        keeps_invariants(limiter, &moves, reset_at)
    });
}
