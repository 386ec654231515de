//! Exactness to the nanosecond, and edge cases.

use std::sync::Arc;
use std::time::Duration;

use tollgate::{
    Calendar, Error, FixedWindow, LeakyBucket, Limiter, MAX_KEY_LEN, Nanos, Rate, SlidingCounter,
    SlidingLog, Timestamp, TokenBucket, UtcOffset, Window,
};

use crate::{clock, denied, millis, secs};

/// Exhausts a limiter, then checks one nanosecond before `retry_after` and at `retry_after`.
fn assert_retry_after_is_exact(
    name: &str,
    limiter: impl FnOnce(Arc<tollgate::ManualClock>) -> Limiter<Arc<tollgate::ManualClock>>,
) {
    let clock = clock();
    let limiter = limiter(Arc::clone(&clock));
    for cost in [1, 2] {
        while limiter.check("alice").is_ok() {}
        let promised = denied(limiter.check_n("alice", cost)).retry_after();
        let promised = Nanos::from(promised.expect("two fit into every limit here"));
        clock.advance(promised.saturating_sub(Nanos::from_nanos(1)));
        let early = denied(limiter.check_n("alice", cost));
        assert_eq!(early.retry_after(), Some(Duration::from_nanos(1)), "{name}");
        clock.advance(Nanos::from_nanos(1));
        assert_eq!(
            limiter.check_n("alice", cost),
            Ok(()),
            "{name}, a cost of {cost}"
        );
    }
}

#[test]
fn i03_a_call_is_admitted_exactly_after_retry_after_and_not_a_nanosecond_earlier() {
    assert_retry_after_is_exact("token bucket", |clock| {
        Limiter::per_second(7)
            .burst(3)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("leaky bucket", |clock| {
        let meter = LeakyBucket::meter(Rate::per_second(7)).burst(3);
        Limiter::builder()
            .limit("meter", meter)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("fixed window", |clock| {
        let day = FixedWindow::builder(5, Window::Calendar(Calendar::Day, UtcOffset::UTC));
        Limiter::builder()
            .limit("day", day)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("sliding log", |clock| {
        let log = SlidingLog::builder(5, Nanos::MINUTE);
        Limiter::builder()
            .limit("log", log)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("sliding counter", |clock| {
        let counter = SlidingCounter::builder(5, Nanos::MINUTE);
        Limiter::builder()
            .limit("counter", counter)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("queue", |clock| {
        let queue = LeakyBucket::queue(Rate::per_second(7)).burst(3);
        Limiter::builder()
            .limit("queue", queue)
            .clock(clock)
            .build()
            .unwrap()
    });
    assert_retry_after_is_exact("several", |clock| {
        let slow = TokenBucket::builder(Rate::per_minute(11)).burst(4);
        let builder = Limiter::builder().limit("fast", Rate::per_second(3));
        builder.limit("slow", slow).clock(clock).build().unwrap()
    });
}

#[test]
fn zero_costs_nothing_and_a_limit_of_zero_denies_everything() {
    let limiter = Limiter::per_second(1).clock(clock()).build().unwrap();
    limiter.check("alice").unwrap();
    assert_eq!(limiter.check_n("alice", 0), Ok(()));
    let nothing = Limiter::per_second(0).clock(clock()).build().unwrap();
    let denied = denied(nothing.check("alice"));
    assert!(denied.is_never());
    assert_eq!((denied.max_cost(), denied.retry_after()), (0, None));
}

#[test]
fn a_cost_above_the_burst_is_never_and_reports_the_maximum() {
    let limiter = Limiter::per_second(10)
        .burst(20)
        .clock(clock())
        .build()
        .unwrap();
    limiter.check_n("alice", 5).unwrap();
    let denied = denied(limiter.check_n("alice", 21));
    assert!(denied.is_never());
    assert_eq!((denied.max_cost(), denied.remaining()), (20, 15));
    assert_eq!(denied.reset_after(), Some(Duration::from_millis(500)));
    assert_eq!(
        denied.to_string(),
        "limit \"rate\" never admits 21 at once: the most is 20"
    );
}

#[test]
fn the_fast_path_returns_the_same_as_the_slow_path() {
    // The same bucket alone, where the status of a denial is computed, and with another limit, where it is read.
    for overdraft in [0, 50] {
        for block in [1, 4] {
            let clock = clock();
            let bucket = TokenBucket::builder(Rate::per_second(3))
                .burst(20)
                .block(block)
                .overdraft(overdraft);
            let short = Limiter::builder()
                .limit("b", bucket)
                .clock(Arc::clone(&clock))
                .build()
                .unwrap();
            let loose = Rate::per_second(1_000_000);
            let long = Limiter::builder().limit("b", bucket).limit("loose", loose);
            let long = long.clock(Arc::clone(&clock)).build().unwrap();
            let mut denials = 0;
            for step in 0..2_000_u64 {
                let cost = step * 7 % 23;
                if overdraft > 0 && step % 9 == 0 {
                    short.charge("k", cost).unwrap();
                    long.charge("k", cost).unwrap();
                }
                let (a, b) = (short.check_n("k", cost), long.check_n("k", cost));
                assert_eq!(a, b, "step {step}");
                denials += u32::from(a.is_err());
                clock.advance(Nanos::from_nanos(step * 1_234_567 % 3_000_000_000));
            }
            assert!(denials > 100, "{denials} denials prove little");
        }
    }
}

#[test]
fn a_clock_that_goes_back_gains_nothing() {
    let clock = clock();
    let limiter = Limiter::per_second(1)
        .burst(5)
        .clock(Arc::clone(&clock))
        .build()
        .unwrap();
    limiter.check_n("alice", 5).unwrap();
    clock.set(Timestamp::from_secs(1_600_000_000));
    assert!(limiter.check("alice").is_err());
    clock.advance(Nanos::from_secs(5));
    assert_eq!(
        limiter.check_n("alice", 5),
        Ok(()),
        "and no key is locked out"
    );
}

#[test]
fn a_long_key_is_an_error_and_neither_truncated_nor_skipped() {
    let limiter = Limiter::per_second(1).clock(clock()).build().unwrap();
    let longest = vec![b'x'; MAX_KEY_LEN];
    limiter.check(&longest).unwrap();
    assert!(matches!(limiter.check(&longest), Err(Error::Denied(_))));
    let longer = vec![b'x'; MAX_KEY_LEN + 1];
    let error = limiter.check(&longer).unwrap_err();
    assert!(matches!(error, Error::KeyTooLong(_)), "{error}");
    assert!(error.denial().is_none());
    assert_eq!(
        error.to_string(),
        "key: 1025 bytes are too long: the longest key has 1024"
    );
}

#[test]
fn a_full_table_keeps_keys_that_are_denied() {
    let limiter = Limiter::per_hour(1)
        .keys(64)
        .clock(clock())
        .build()
        .unwrap();
    limiter.check("victim").unwrap();
    let mut admitted = 0;
    for newcomer in 0..100_000_u32 {
        // New keys must not evict a key that has used its quota.
        admitted += u32::from(limiter.check(newcomer.to_be_bytes()).is_ok());
    }
    assert!(limiter.check("victim").is_err());
    assert!(admitted > 64, "the sketch admits new keys where it can");
    assert!(limiter.usage().overflow_decisions > 0);
}

#[test]
fn denials_have_readable_messages() {
    let limiter = Limiter::per_second(4)
        .name("per-user")
        .clock(clock())
        .build()
        .unwrap();
    limiter.check_n("alice", 4).unwrap();
    let denied = denied(limiter.check_n("alice", 3));
    let text = "limit \"per-user\" has no room for 3 now: retry after 750ms";
    assert_eq!(denied.to_string(), text);
    assert_eq!(
        denied.outcome(),
        tollgate::Outcome::Deny {
            retry_after: millis(750)
        }
    );
    assert_eq!(denied.reset_after(), Some(secs(1)));
}
