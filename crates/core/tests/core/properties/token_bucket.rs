//! The token bucket and the leaky meter against an explicit log of everything admitted (I-01, I-03).
//!
//! A request is admitted if and only if, for every earlier admission, the units admitted since and this request are at most the burst and
//! the refill of the time between. So no window admits more, and no client that stays within that is denied.

use proptest::prelude::*;
use tollgate_core::{LeakyBucket, Nanos, Outcome, QuotaStatus, Rate, Timestamp};
use tollgate_testkit::oracle::BucketLog;

use super::harness::{CheckResult, assert_caught, assert_holds, ensure};
use super::subject::{RealLimit, Step, Subject, at, beginning, bucket, interval, trace};

/// The limiter admits exactly what the log has room for.
fn decides_like_the_log<S: Subject>(
    mut limiter: S,
    (interval, burst): (u64, u64),
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut log = BucketLog::new(interval, burst);
    let mut now = begin;
    for step in steps {
        now += step.advance(interval);
        let price = i128::from(step.cost) * i128::from(interval);
        let fits = log.fits(now, price);
        let outcome = limiter.spend(at(now), step.cost);
        ensure!(
            outcome.is_admitted() == fits,
            "{outcome:?} at {now}, fits: {fits}"
        );
        if fits && step.cost > 0 {
            log.charge(now, price);
        }
    }
    Ok(())
}

/// No window of the log of what was admitted exceeds burst + rate × window. Says nothing about denials.
fn no_window_exceeds<S: Subject>(
    mut limiter: S,
    (interval, burst): (u64, u64),
    begin: u64,
    steps: &[Step],
) -> CheckResult {
    let mut log = BucketLog::new(interval, burst);
    let mut now = begin;
    for step in steps {
        now += step.advance(interval);
        if limiter.spend(at(now), step.cost).is_admitted() {
            log.charge(now, i128::from(step.cost) * i128::from(interval));
        }
    }
    ensure!(
        log.worst_excess() <= 0,
        "{} ns too much",
        log.worst_excess()
    );
    Ok(())
}

/// A client that waits until the log has room, and `slack` nanoseconds more, is never denied.
fn a_conforming_client_is_never_denied<S: Subject>(
    mut limiter: S,
    (interval, burst): (u64, u64),
    begin: u64,
    arrivals: &[(u64, u64)],
) -> CheckResult {
    // The arrivals conform by construction: the debt is computed here in plain numbers, and a request that would exceed the burst is
    // delayed until it does not.
    let (mut now, mut debt) = (i128::from(begin), 0_i128);
    let capacity = i128::from(interval) * i128::from(burst);
    for (cost, slack) in arrivals {
        let price = i128::from(cost % burst + 1) * i128::from(interval);
        let wait = (debt + price - capacity).max(0) + i128::from(slack % (2 * interval));
        now += wait;
        debt = (debt - wait).max(0) + price;
        let outcome = limiter.spend(at(u64::try_from(now).unwrap()), cost % burst + 1);
        ensure!(outcome.is_admitted(), "a conforming client got {outcome:?}");
    }
    Ok(())
}

fn quotas() -> impl Strategy<Value = (u64, u64)> {
    (interval(), 1_u64..12)
}

fn meter(interval: u64, burst: u64) -> RealLimit {
    let rate = Rate::new(1, Nanos::from_nanos(interval));
    RealLimit::new(LeakyBucket::meter(rate).burst(burst - 1).build().unwrap())
}

#[test]
fn i01_i03_a_token_bucket_decides_like_the_log() {
    assert_holds(
        &(quotas(), beginning(), trace(60, 12)),
        |(quota, begin, steps)| {
            decides_like_the_log(
                RealLimit::new(bucket(quota.0, quota.1)),
                quota,
                begin,
                &steps,
            )
        },
    );
}

#[test]
fn i01_i03_a_leaky_meter_decides_like_the_log() {
    assert_holds(
        &(quotas(), beginning(), trace(60, 12)),
        |(quota, begin, steps)| decides_like_the_log(meter(quota.0, quota.1), quota, begin, &steps),
    );
}

#[test]
fn i01_no_window_admits_more_than_burst_plus_rate() {
    assert_holds(
        &(quotas(), beginning(), trace(60, 12)),
        |(quota, begin, steps)| {
            no_window_exceeds(
                RealLimit::new(bucket(quota.0, quota.1)),
                quota,
                begin,
                &steps,
            )?;
            no_window_exceeds(meter(quota.0, quota.1), quota, begin, &steps)
        },
    );
}

#[test]
fn i03_a_conforming_client_is_never_denied_by_a_bucket() {
    let arrivals = prop::collection::vec((any::<u64>(), prop_oneof![Just(0), any::<u64>()]), 1..60);
    assert_holds(
        &(quotas(), beginning(), arrivals),
        |(quota, begin, arrivals)| {
            let real = RealLimit::new(bucket(quota.0, quota.1));
            a_conforming_client_is_never_denied(real, quota, begin, &arrivals)?;
            a_conforming_client_is_never_denied(meter(quota.0, quota.1), quota, begin, &arrivals)
        },
    );
}

/// A bucket with one mistake.
#[derive(Clone, Debug, PartialEq)]
struct WrongBucket {
    mistake: Mistake,
    interval: u64,
    burst: u64,
    tat: u64,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Mistake {
    /// The state may lie in the past by the whole tolerance (`max(tat, now − tolerance)`), as throttlecrab had it: an
    /// idle client gets two bursts.
    TatInThePast,
    /// Capacity rounded down by a nanosecond while the price was rounded up, as in a float of seconds.
    CapacityRoundedDown,
    /// The request at the very edge is denied: `<` instead of `≤`.
    StrictComparison,
    /// Debt is charged from an old state, so that nothing refills without requests.
    ChargesFromOldTat,
    /// Denied requests push the state on, as a leaky bucket that counts them.
    DenialsCharged,
}

impl Subject for WrongBucket {
    fn spend(&mut self, now: Timestamp, cost: u64) -> Outcome {
        let now = now.as_nanos();
        let mut capacity = self.interval * self.burst;
        let from = match self.mistake {
            Mistake::TatInThePast => self.tat.max(now.saturating_sub(capacity)),
            Mistake::ChargesFromOldTat => self.tat.max(now / 2),
            _ => self.tat.max(now),
        };
        if self.mistake == Mistake::CapacityRoundedDown {
            capacity -= 1;
        }
        let next = from.saturating_add(cost.saturating_mul(self.interval));
        let strict = u64::from(self.mistake == Mistake::StrictComparison && cost > 0);
        if next + strict > now + capacity {
            if self.mistake == Mistake::DenialsCharged {
                self.tat = (now + capacity).min(next);
            }
            let retry_after = Nanos::from_nanos(next.saturating_sub(now + capacity).max(1));
            return Outcome::Deny { retry_after };
        }
        self.tat = next;
        Outcome::Allow
    }

    fn status(&self, now: Timestamp) -> QuotaStatus {
        let debt = self.tat.saturating_sub(now.as_nanos());
        let left = (self.interval * self.burst).saturating_sub(debt);
        QuotaStatus {
            limit: self.burst,
            remaining: left / self.interval,
            reset_after: Nanos::from_nanos(debt),
        }
    }
}

const fn wrong(mistake: Mistake, (interval, burst): (u64, u64)) -> WrongBucket {
    WrongBucket {
        mistake,
        interval,
        burst,
        tat: 0,
    }
}

#[test]
fn control_every_wrong_bucket_is_caught() {
    for mistake in [
        Mistake::TatInThePast,
        Mistake::CapacityRoundedDown,
        Mistake::StrictComparison,
        Mistake::ChargesFromOldTat,
        Mistake::DenialsCharged,
    ] {
        assert_caught(
            &(quotas(), beginning(), trace(60, 12)),
            |(quota, begin, steps)| {
                decides_like_the_log(wrong(mistake, quota), quota, begin, &steps)
            },
        );
    }
}

#[test]
fn control_a_state_in_the_past_exceeds_a_window() {
    assert_caught(
        &(quotas(), beginning(), trace(60, 12)),
        |(quota, begin, steps)| {
            no_window_exceeds(wrong(Mistake::TatInThePast, quota), quota, begin, &steps)
        },
    );
}

#[test]
fn control_rounding_twice_denies_a_conforming_client() {
    let arrivals = prop::collection::vec((any::<u64>(), Just(0)), 1..60);
    for mistake in [Mistake::CapacityRoundedDown, Mistake::StrictComparison] {
        assert_caught(
            &(quotas(), beginning(), arrivals.clone()),
            |(quota, begin, arrivals)| {
                a_conforming_client_is_never_denied(wrong(mistake, quota), quota, begin, &arrivals)
            },
        );
    }
}
