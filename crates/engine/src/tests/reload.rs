//! Rules are replaced while requests are decided: every verdict belongs to one generation, and debts stay.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Algorithm, LimitRule};

use crate::testing::{TestCaller, engine, limit, per_second, quota, rules};
use crate::{DenialReason, Engine, Ticket, Verdict};

/// Version `n` of a policy: `n` limits of `1000 × n` per hour, with the version in their messages.
fn version(n: u64) -> Vec<LimitRule> {
    let hour = |units| quota(Algorithm::TokenBucket, &[(units, Nanos::HOUR)]);
    let one = |index: u64| {
        let mut one = limit(&format!("limit-{index}"), hour(1_000 * n));
        one.message = Some(n.to_string().into());
        one.status = 400 + u16::try_from(n).unwrap();
        one
    };
    (0..n).map(one).collect()
}

/// Whether everything in a verdict belongs to one version.
fn is_of_one_version(verdict: &Verdict) -> bool {
    let states = verdict.limits();
    let n = u64::try_from(states.len()).unwrap();
    let rules = verdict.generation().rules();
    // The last one is the built-in limit of preflights.
    rules.preflight_rule() == Some(states.len())
        && states.iter().enumerate().all(|(index, state)| {
            state.status.limit == 1_000 * n
                && state.status.remaining <= state.status.limit
                && verdict.rule(state).is_some_and(|rule| {
                    *rule.name == *format!("limit-{index}")
                        && rule.message.as_deref() == Some(&*n.to_string())
                })
        })
}

#[test]
fn i09_every_verdict_under_concurrent_reloads_belongs_to_exactly_one_generation() {
    let (engine, _clock) = engine(version(1));
    let (done, decided) = (AtomicBool::new(false), AtomicU64::new(0));
    let seen: [AtomicU64; 5] = std::array::from_fn(|_| AtomicU64::new(0));
    thread::scope(|scope| {
        for index in 0..6 {
            let (engine, done, decided, seen) = (&engine, &done, &decided, &seen);
            scope.spawn(move || {
                let caller = TestCaller::named(&format!("user-{index}"));
                while !done.load(Ordering::Relaxed) {
                    let verdict = engine.decide(&caller);
                    assert!(is_of_one_version(&verdict), "{verdict:?}");
                    seen[verdict.limits().len()].fetch_add(1, Ordering::Relaxed);
                    decided.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let mut last = 1;
        for n in (0..400).map(|n| 1 + n % 4) {
            let number = engine.replace(rules(version(n))).unwrap();
            assert_eq!(number, last + 1);
            last = number;
            // At least one decision between two reloads.
            let before = decided.load(Ordering::Relaxed);
            while decided.load(Ordering::Relaxed) == before {
                thread::yield_now();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let [none, versions @ ..] = seen.map(AtomicU64::into_inner);
    assert_eq!(none, 0);
    assert!(versions.iter().all(|count| *count > 0), "{versions:?}");
}

#[test]
fn control_a_verdict_of_two_versions_is_caught() {
    let mut mixed = version(2);
    mixed[1] = version(3).remove(1);
    let (engine, _clock) = engine(mixed);
    assert!(!is_of_one_version(
        &engine.decide(&TestCaller::named("alice"))
    ));
}

#[test]
fn i09_a_changed_rate_keeps_the_debt_and_a_lowered_one_never_makes_it_negative() {
    let (engine, _clock) = engine(vec![limit("api", per_second(100))]);
    let alice = TestCaller::named("alice");
    for _ in 0..60 {
        assert!(engine.decide(&alice).is_admitted());
    }
    let left = |units| {
        engine
            .replace(rules(vec![limit("api", per_second(units))]))
            .unwrap();
        let verdict = engine.peek(&alice);
        let status = verdict.limits()[0].status;
        assert!(status.remaining <= status.limit);
        status.remaining
    };
    // A debt keeps its length in time: 600 ms.
    assert_eq!(left(100), 40);
    assert_eq!(left(200), 80);
    assert_eq!(left(10), 4);
    assert_eq!(left(1), 0);
    assert_eq!(
        left(100),
        40,
        "a smaller quota in between keeps the debt of up to one second"
    );
}

#[test]
fn s41_a_limit_that_is_lowered_under_load_is_clamped_and_never_negative() {
    let (engine, clock) = engine(vec![limit("api", per_second(1_000))]);
    let alice = TestCaller::named("alice");
    while engine.decide(&alice).is_admitted() {}
    engine
        .replace(rules(vec![limit(
            "api",
            quota(Algorithm::TokenBucket, &[(2, Nanos::from_millis(100))]),
        )]))
        .unwrap();
    let verdict = engine.decide(&alice);
    // The debt of one second is clamped to the new quota's capacity of two units.
    let retry_after = Nanos::from_millis(50);
    assert_eq!(verdict.outcome(), Outcome::Deny { retry_after });
    clock.advance(retry_after);
    assert!(engine.decide(&alice).is_admitted());
}

#[test]
fn another_algorithm_starts_empty_and_changing_back_restores_the_old_state() {
    let bucket = || {
        rules(vec![limit(
            "api",
            quota(Algorithm::TokenBucket, &[(5, Nanos::MINUTE)]),
        )])
    };
    let window = || {
        rules(vec![limit(
            "api",
            quota(Algorithm::FixedWindow, &[(5, Nanos::MINUTE)]),
        )])
    };
    let (engine, _clock) = crate::testing::engine_with(bucket());
    let alice = TestCaller::named("alice");
    let left = || engine.peek(&alice).limits()[0].status.remaining;
    for _ in 0..3 {
        assert!(engine.decide(&alice).is_admitted());
    }
    engine.replace(window()).unwrap();
    assert_eq!(left(), 5);
    engine.replace(bucket()).unwrap();
    assert_eq!(left(), 2);
}

#[test]
fn a_sliding_window_of_another_length_keeps_its_count() {
    let window = |secs| quota(Algorithm::SlidingWindow, &[(10, Nanos::from_secs(secs))]);
    let (engine, _clock) = engine(vec![limit("api", window(60))]);
    let alice = TestCaller::named("alice");
    for _ in 0..7 {
        assert!(engine.decide(&alice).is_admitted());
    }
    engine
        .replace(rules(vec![limit("api", window(120))]))
        .unwrap();
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, 3);
}

#[test]
fn windows_that_tiers_share_are_converted_once() {
    let window = |units, secs| quota(Algorithm::SlidingWindow, &[(units, Nanos::from_secs(secs))]);
    let with = |secs| {
        let mut api = limit("api", window(10, secs));
        api.tiers = Some(tollgate_policy::model::Tiers {
            by: tollgate_policy::attributes::Attribute::Host.into(),
            tiers: vec![
                (Box::<str>::from("a").into(), window(20, secs)),
                (Box::<str>::from("b").into(), window(30, secs)),
            ],
        });
        vec![api]
    };
    let (engine, clock) = engine(with(60));
    let alice = TestCaller::named("alice");
    for _ in 0..7 {
        assert!(engine.decide(&alice).is_admitted());
    }
    clock.advance(Nanos::from_secs(90));
    let before = engine.peek(&alice).limits()[0].status.remaining;
    engine.replace(rules(with(120))).unwrap();
    assert_eq!(engine.peek(&alice).limits()[0].status.remaining, before);
}

#[test]
fn a_limit_that_is_removed_and_restored_keeps_its_debt_while_its_state_lives() {
    let (engine, clock) = engine(vec![limit(
        "api",
        quota(Algorithm::TokenBucket, &[(5, Nanos::MINUTE)]),
    )]);
    let alice = TestCaller::named("alice");
    while engine.decide(&alice).is_admitted() {}
    let put_back = || {
        engine.replace(rules(Vec::new())).unwrap();
        assert!(engine.decide(&alice).is_admitted(), "without a limit");
        engine
            .replace(rules(vec![limit(
                "api",
                quota(Algorithm::TokenBucket, &[(5, Nanos::MINUTE)]),
            )]))
            .unwrap();
    };
    put_back();
    let verdict = engine.decide(&alice);
    assert_eq!(verdict.reason(), Some(DenialReason::Rate));
    let counted = engine.totals("api").unwrap();
    assert_eq!(
        (counted.allowed, counted.denied),
        (5, 2),
        "counters continue too"
    );
    clock.advance(Nanos::HOUR);
    put_back();
    assert!(engine.decide(&alice).is_admitted());
}

/// Servers hold engines, verdicts and tickets across awaits.
#[test]
fn engines_verdicts_and_tickets_are_send() {
    const fn can_be_handed_over<T: Send + Sync>() {}
    can_be_handed_over::<Engine<tollgate_store::MemoryStore>>();
    can_be_handed_over::<Verdict>();
    can_be_handed_over::<Ticket>();
}
