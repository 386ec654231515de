//! Many threads on one engine: exactly the limit is admitted, and denied requests are not charged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tollgate_core::Nanos;
use tollgate_policy::model::{Algorithm, LimitRule, Located, QuotaSpec};

use crate::testing::{TestCaller, TestEngine, engine, limit, quota};

const THREADS: usize = 64;
const LIMIT: u64 = 500;

fn day(algorithm: Algorithm, units: u64) -> Located<QuotaSpec> {
    quota(algorithm, &[(units, Nanos::from_secs(86_401))])
}

/// How many of the requests of 64 threads, 20 each, are admitted.
fn admitted(engine: &TestEngine, decide: impl Fn(&TestEngine, &TestCaller) -> bool + Sync) -> u64 {
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let caller = TestCaller::named("alice");
                for _ in 0..20 {
                    let one = u64::from(decide(engine, &caller));
                    admitted.fetch_add(one, Ordering::Relaxed);
                }
            });
        }
    });
    admitted.into_inner()
}

fn three_limits() -> Vec<LimitRule> {
    vec![
        limit("wide", day(Algorithm::TokenBucket, 10_000)),
        limit("narrow", day(Algorithm::TokenBucket, LIMIT)),
        limit("window", day(Algorithm::SlidingWindow, 5_000)),
    ]
}

#[test]
fn i01_sixty_four_threads_use_exactly_the_narrowest_limit_and_the_other_limits_are_charged_no_more() {
    let (engine, _clock) = engine(three_limits());
    let decide = |engine: &TestEngine, caller: &TestCaller| engine.decide(caller).is_admitted();
    assert_eq!(admitted(&engine, decide), LIMIT);
    let verdict = engine.peek(&TestCaller::named("alice"));
    let left: Vec<u64> = verdict
        .limits()
        .iter()
        .map(|state| state.status.remaining)
        .collect();
    assert_eq!(left, [10_000 - LIMIT, 0, 5_000 - LIMIT]);
    let counted = engine.totals("narrow").unwrap();
    let asked = u64::try_from(THREADS * 20).unwrap();
    assert_eq!((counted.allowed, counted.denied), (LIMIT, asked - LIMIT));
    assert_eq!(engine.totals("wide").unwrap().denied, 0);
    assert!(engine.totals("nobody").is_none());
}

#[test]
fn control_peek_then_charge_admits_too_much() {
    // Negative control: peek first and charge afterwards admits too much, since 500 units are there and 1,280 requests
    // ask.
    let (engine, _clock) = engine(vec![
        LimitRule {
            charge_always: true,
            overdraft: 100_000,
            ..limit("charged", day(Algorithm::TokenBucket, LIMIT))
        },
        limit("wide", day(Algorithm::TokenBucket, 10_000)),
    ]);
    let barrier = std::sync::Barrier::new(THREADS);
    let first = AtomicU64::new(0);
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                let caller = TestCaller::named("alice");
                for _ in 0..20 {
                    let left = engine.peek(&caller).limits()[0].status.remaining;
                    barrier.wait();
                    if left > 0 {
                        first.fetch_add(1, Ordering::Relaxed);
                        assert!(engine.decide(&caller).is_admitted());
                    }
                    barrier.wait();
                }
            });
        }
    });
    assert!(first.into_inner() > LIMIT);
}

#[test]
fn distinct_values_are_counted_once_however_many_threads_send_them() {
    let mut paths = limit("paths", day(Algorithm::TokenBucket, 10));
    paths.distinct = Some(tollgate_policy::attributes::Attribute::Path.into());
    let (engine, _clock) = engine(vec![paths]);
    let admitted = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..THREADS {
            let (engine, admitted) = (&engine, &admitted);
            scope.spawn(move || {
                for n in 0..20 {
                    let path = format!("/{}", (n + thread) % 8);
                    let caller = TestCaller::named("alice").with("path", &path);
                    let verdict = engine.decide(&caller);
                    admitted.fetch_add(u64::from(verdict.is_admitted()), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(
        admitted.into_inner(),
        64 * 20,
        "eight values are fewer than ten"
    );
    let verdict = engine.peek(&TestCaller::named("alice").with("path", "/0"));
    assert_eq!(verdict.limits()[0].status.remaining, 2);
}
