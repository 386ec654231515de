//! What a verdict says of the quota that decided, so that header fields need no guess.

use tollgate_core::{Nanos, QuotaUnit};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;

use crate::testing::{TestCaller, TestEngine, engine_with};
use crate::{CheckMode, CheckOptions, LimitState, Verdict};

fn engine(text: &str) -> TestEngine {
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    engine_with(Rules::compile(&policy, [7; 16]).unwrap()).0
}

/// What header fields need to know of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QuotaFields {
    key: Vec<u8>,
    cost: u64,
    unit: QuotaUnit,
    window: Nanos,
    time_to_next_unit: Nanos,
}

fn ask(engine: &TestEngine, caller: &TestCaller, mode: CheckMode) -> (Verdict, Vec<QuotaFields>) {
    let verdict = engine.check(caller, CheckOptions::new(mode));
    let noted = |state: &LimitState| {
        let quota = verdict.quota_info(state);
        QuotaFields {
            key: verdict.key(state).to_vec(),
            cost: state.cost,
            unit: quota.unit(),
            window: quota.window(),
            time_to_next_unit: quota.time_to_next_unit(&state.status),
        }
    };
    let noted = verdict.limits().iter().map(noted).collect();
    (verdict, noted)
}

fn first(engine: &TestEngine, caller: &TestCaller) -> (LimitState, QuotaFields) {
    let (verdict, noted) = ask(engine, caller, CheckMode::Charge);
    (verdict.limits()[0], noted[0].clone())
}

fn on(plan: &str) -> TestCaller {
    TestCaller::named("a").with("header.plan", plan)
}

/// They were told apart by what they admit at most, so the second of them had the first one's window.
#[test]
fn two_tiers_with_one_burst_and_different_rates_are_told_apart() {
    let engine = engine(
        "
limits:
  - name: api
    key: header.user
    rate: 10/s
    burst: 20
    tiers: { by: header.plan, slow: { rate: 1/s, burst: 20 }, fast: { rate: 20/s, burst: 20 } }
",
    );
    for (plan, index, window) in [("", 0, 2), ("slow", 1, 20), ("fast", 2, 1)] {
        let (state, noted) = first(&engine, &on(plan));
        assert_eq!(state.quota_index(), Some(index), "{plan}");
        assert_eq!(noted.window, Nanos::from_secs(window), "{plan}");
        assert_eq!((state.status.limit, noted.cost), (20, 1));
    }
}

/// They stand in no list, so nothing but their number was known.
#[test]
fn a_computed_quota_keeps_its_window_and_its_unit() {
    let engine = engine(
        "
limits:
  - { name: app, key: header.user, rate: \"10/m + 5/m × header.repos, at most 30/m\", unit: bytes }
",
    );
    for (repos, limit) in [("1", 15), ("2", 20), ("9", 30)] {
        let caller = TestCaller::named(repos).with("header.repos", repos);
        let (state, noted) = first(&engine, &caller);
        assert_eq!((state.quota_index(), noted.unit), (None, QuotaUnit::Bytes));
        assert_eq!(state.status.limit, limit);
        assert_eq!(noted.window, Nanos::MINUTE, "{repos}");
    }
}

/// What decides there has the wait added to its capacity.
#[test]
fn a_quota_that_may_be_waited_for_keeps_its_own_window() {
    let engine = engine(
        "
limits: [{ name: api, key: header.user, rate: 2/s, wait: 1m, tiers: { by: header.plan, slow: 1/s } }]
",
    );
    for (plan, index) in [("", 0), ("slow", 1)] {
        let (state, noted) = first(&engine, &on(plan));
        assert_eq!(state.quota_index(), Some(index));
        assert_eq!(noted.window, Nanos::SECOND);
    }
}

#[test]
fn of_an_empty_bucket_it_is_known_when_there_is_one_more_and_of_windows_it_is_not() {
    let engine = engine(
        "
limits:
  - { name: bucket, key: header.user, rate: 2/s, burst: 4 }
  - { name: window, key: header.user, rate: 4/m, algorithm: fixed_window }
  - { name: month, key: header.user, rate: 100/month, algorithm: fixed_window }
  - { name: places, key: header.user, concurrency: 9 }
",
    );
    let caller = TestCaller::named("a");
    for left in [3, 2, 1, 0] {
        let (verdict, noted) = ask(&engine, &caller, CheckMode::Charge);
        assert_eq!(verdict.limits()[0].status.remaining, left);
        let windows: Vec<u64> = noted.iter().map(|one| one.window.as_secs_ceil()).collect();
        assert_eq!(windows, [2, 60, 0, 0]);
        let more: Vec<Nanos> = noted.iter().map(|one| one.time_to_next_unit).collect();
        let half = Nanos::from_millis(if left == 0 { 500 } else { 0 });
        assert_eq!(more, [half, Nanos::ZERO, Nanos::ZERO, Nanos::ZERO]);
    }
}

/// Nine a second is one every 111,111,112 ns, which is eight nanoseconds too long for the whole; told in seconds that was
/// two.
#[test]
fn a_window_is_as_long_as_it_was_written() {
    for (rate, window) in [
        ("9/s", Nanos::SECOND),
        ("7/m", Nanos::MINUTE),
        ("999983/s", Nanos::SECOND),
        ("3/s, burst: 5", Nanos::from_nanos(1_666_666_670)),
        ("1/w", Nanos::from_secs(604_800)),
    ] {
        let engine = engine(&format!("limits: [{{ name: api, rate: {rate} }}]"));
        let (_, noted) = first(&engine, &TestCaller::default());
        assert_eq!(noted.window, window, "{rate}");
    }
}

#[test]
fn a_verdict_knows_the_key_of_every_state_that_it_lists() {
    let engine = engine(
        "
limits:
  - { name: all, rate: 100/s }
  - { name: user, key: header.user, rate: 100/s }
  - { name: both, key: [header.user, header.plan], rate: 100/s, mode: shadow }
",
    );
    let (verdict, charged) = ask(&engine, &on("pro"), CheckMode::Charge);
    assert_eq!(verdict.limits().len(), 3);
    let keys = |noted: &[QuotaFields]| -> Vec<Vec<u8>> {
        noted.iter().map(|one| one.key.clone()).collect()
    };
    let own = keys(&charged);
    assert!(own[0].is_empty() && !own[1].is_empty());
    assert!(own[2].len() > own[1].len());
    assert_eq!(keys(&ask(&engine, &on("pro"), CheckMode::Peek).1), own);
    let other = TestCaller::named("b").with("header.plan", "pro");
    assert_ne!(keys(&ask(&engine, &other, CheckMode::Reserve).1)[1], own[1]);
}
