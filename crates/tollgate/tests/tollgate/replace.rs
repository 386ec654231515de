//! Replacing limits while they are in use.

use std::sync::Arc;

use tollgate::{
    FixedWindow, Limiter, Limits, Nanos, Rate, SlidingCounter, SlidingLog, TokenBucket, Window,
};

use crate::{clock, denied, millis};

#[test]
fn a_limit_with_the_same_name_and_algorithm_keeps_its_state() {
    let window = |limit| FixedWindow::builder(limit, Window::Epoch(Nanos::HOUR));
    let log = |limit| SlidingLog::builder(limit, Nanos::HOUR);
    let counter = |limit| SlidingCounter::builder(limit, Nanos::HOUR);
    let limits = |n| {
        let limits = Limits::new().limit("bucket", Rate::per_hour(n));
        limits
            .limit("window", window(n))
            .limit("log", log(n))
            .limit("counter", counter(n))
    };
    let limiter = Limiter::builder()
        .limit("bucket", Rate::per_hour(10))
        .limit("window", window(10))
        .limit("log", log(10))
        .limit("counter", counter(10))
        .clock(clock())
        .build()
        .unwrap();
    limiter.check_n("alice", 4).unwrap();
    limiter.replace(limits(20)).unwrap();
    let left = || -> Vec<_> {
        limiter
            .peek("alice")
            .unwrap()
            .limits()
            .map(|s| s.remaining)
            .collect()
    };
    assert_eq!(
        left(),
        [12, 16, 16, 16],
        "debt keeps its time, counts stay counts"
    );
    limiter.replace(limits(4)).unwrap();
    assert_eq!(left(), [2, 0, 0, 0]);
    assert!(limiter.check("alice").is_err());
}

/// Once the counts were read with the new window, so a key that had used its hour had a full minute.
#[test]
fn a_sliding_counter_with_another_window_keeps_its_estimate() {
    let clock = clock();
    let limiter = Limiter::builder()
        .limit("rate", SlidingCounter::builder(100, Nanos::HOUR))
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    limiter.check_n("alice", 60).unwrap();
    clock.advance(Nanos::from_secs(30 * 60));
    let minute = SlidingCounter::builder(100, Nanos::MINUTE);
    limiter.replace(Limits::from_limit(minute)).unwrap();
    let left = |key| limiter.peek(key).unwrap().tightest().remaining;
    assert_eq!((left("alice"), left("bob")), (40, 100));
    clock.advance(Nanos::from_secs(120));
    assert_eq!(left("alice"), 100, "the new window has passed");
}

#[test]
fn another_algorithm_or_another_name_starts_empty() {
    let limiter = Limiter::per_hour(5).clock(clock()).build().unwrap();
    limiter.check_n("alice", 5).unwrap();
    limiter
        .replace(Limits::from_limit(SlidingLog::builder(5, Nanos::HOUR)))
        .unwrap();
    limiter.check_n("alice", 5).unwrap();
    limiter
        .replace(Limits::new().limit("new", SlidingLog::builder(5, Nanos::HOUR)))
        .unwrap();
    limiter.check_n("alice", 5).unwrap();
    limiter
        .replace(Limits::from_limit(Rate::per_hour(5)))
        .unwrap();
    assert_eq!(
        limiter.check_n("alice", 5),
        Ok(()),
        "a removed name starts empty"
    );
    assert_eq!(denied(limiter.check("alice")).limit(), Limits::UNNAMED);
}

#[test]
fn a_smaller_quota_does_not_forgive_debt_of_a_larger_one() {
    let clock = clock();
    let limiter = Limiter::per_minute(60)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    limiter.check_n("alice", 60).unwrap();
    limiter
        .replace(Limits::from_limit(
            TokenBucket::builder(Rate::per_second(10)).burst(1),
        ))
        .unwrap();
    let wait = denied(limiter.check("alice")).retry_after();
    assert_eq!(
        wait,
        Some(millis(60_000).into()),
        "a debt of a minute stays a minute"
    );
    assert_eq!(limiter.check("bob"), Ok(()));
}

#[test]
fn invalid_limits_leave_the_current_ones() {
    let limiter = Limiter::per_hour(5).clock(clock()).build().unwrap();
    let copy = limiter.clone();
    assert!(limiter.replace(Limits::new()).is_err());
    assert!(
        limiter
            .replace(Limits::from_limit(Rate::per_second(700_000_000)))
            .is_err()
    );
    assert_eq!(copy.peek("alice").unwrap().tightest().limit, 5);
    limiter
        .replace(Limits::from_limit(Rate::per_hour(6)))
        .unwrap();
    assert_eq!(
        copy.peek("alice").unwrap().tightest().limit,
        6,
        "clones share their limits"
    );
}

#[test]
fn a_charge_is_refunded_only_to_the_limit_it_was_made_on() {
    let limiter = Limiter::per_hour(10).clock(clock()).build().unwrap();
    let bucket = limiter.spend("alice", 5).unwrap();
    let reserved = limiter.reserve("alice", 5).unwrap();
    limiter
        .replace(Limits::from_limit(FixedWindow::builder(
            10,
            Window::FirstHit(Nanos::HOUR),
        )))
        .unwrap();
    limiter.check_n("alice", 3).unwrap();
    limiter.refund("alice", bucket).unwrap();
    reserved.settle(9).unwrap();
    assert_eq!(limiter.peek("alice").unwrap().tightest().remaining, 7);
}

#[test]
fn replace_under_load_never_admits_more_than_the_largest_limit() {
    let limiter = Limiter::per_hour(300).clock(clock()).build().unwrap();
    let admitted: u32 = std::thread::scope(|scope| {
        let ask = || {
            (0..1_000)
                .map(|_| u32::from(limiter.check("k").is_ok()))
                .sum::<u32>()
        };
        let asking: Vec<_> = (0..3).map(|_| scope.spawn(ask)).collect();
        for n in 0..200 {
            // The interval of one unit stays the same, so that admitted units can be counted.
            let burst = 200 + n % 101;
            let bucket = TokenBucket::builder(Rate::per_hour(300)).burst(burst);
            limiter.replace(Limits::from_limit(bucket)).unwrap();
        }
        asking
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert!((200..=300).contains(&admitted), "{admitted}");
}
