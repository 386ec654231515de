//! The quota description of a verdict, so that header fields need no guess.

use tollgate_core::{Nanos, QuotaUnit};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::SourceFormat;

use crate::testing::{TestCaller, TestEngine, engine_with};
use crate::{CheckMode, CheckOptions, LimitState, Verdict};

fn engine(text: &str) -> TestEngine {
    let policy = tollgate_policy::load(text, "test.yaml", SourceFormat::Yaml).unwrap();
    engine_with(Rules::compile(&policy, [7; 16]).unwrap()).0
}

/// The fields of one state.
#[derive(Clone, Debug, PartialEq, Eq)]
struct QuotaFields {
    key: Vec<u8>,
    cost: u64,
    unit: QuotaUnit,
    window: Nanos,
    time_to_next_unit: Nanos,
}

fn check(engine: &TestEngine, caller: &TestCaller, mode: CheckMode) -> (Verdict, Vec<QuotaFields>) {
    let verdict = engine.check(caller, CheckOptions::new(mode));
    let fields = |state: &LimitState| {
        let quota = verdict.quota_info(state);
        QuotaFields {
            key: verdict.key(state).to_vec(),
            cost: state.cost,
            unit: quota.unit(),
            window: quota.window(),
            time_to_next_unit: quota.time_to_next_unit(&state.status),
        }
    };
    let fields = verdict.limits().iter().map(fields).collect();
    (verdict, fields)
}

fn first(engine: &TestEngine, caller: &TestCaller) -> (LimitState, QuotaFields) {
    let (verdict, fields) = check(engine, caller, CheckMode::Charge);
    (verdict.limits()[0], fields[0].clone())
}

fn with_plan(plan: &str) -> TestCaller {
    TestCaller::named("a").with("header.plan", plan)
}

/// Regression: quotas were told apart by their capacity, so the second one had the window of the first.
#[test]
fn two_tiers_with_the_same_burst_and_different_rates_report_different_windows() {
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
        let (state, fields) = first(&engine, &with_plan(plan));
        assert_eq!(state.quota_index(), Some(index), "{plan}");
        assert_eq!(fields.window, Nanos::from_secs(window), "{plan}");
        assert_eq!((state.status.limit, fields.cost), (20, 1));
    }
}

/// Regression: computed quotas are in no list, so only their capacity was known.
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
        let (state, fields) = first(&engine, &caller);
        assert_eq!((state.quota_index(), fields.unit), (None, QuotaUnit::Bytes));
        assert_eq!(state.status.limit, limit);
        assert_eq!(fields.window, Nanos::MINUTE, "{repos}");
    }
}

/// The deciding quota has the wait added to its capacity.
#[test]
fn a_quota_with_a_wait_keeps_its_own_window() {
    let engine = engine(
        "
limits: [{ name: api, key: header.user, rate: 2/s, wait: 1m, tiers: { by: header.plan, slow: 1/s } }]
",
    );
    for (plan, index) in [("", 0), ("slow", 1)] {
        let (state, fields) = first(&engine, &with_plan(plan));
        assert_eq!(state.quota_index(), Some(index));
        assert_eq!(fields.window, Nanos::SECOND);
    }
}

#[test]
fn an_empty_bucket_reports_the_time_to_the_next_unit_and_a_window_does_not() {
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
        let (verdict, fields) = check(&engine, &caller, CheckMode::Charge);
        assert_eq!(verdict.limits()[0].status.remaining, left);
        let windows: Vec<u64> = fields
            .iter()
            .map(|fields| fields.window.as_secs_ceil())
            .collect();
        assert_eq!(windows, [2, 60, 0, 0]);
        let more: Vec<Nanos> = fields
            .iter()
            .map(|fields| fields.time_to_next_unit)
            .collect();
        let half = Nanos::from_millis(if left == 0 { 500 } else { 0 });
        assert_eq!(more, [half, Nanos::ZERO, Nanos::ZERO, Nanos::ZERO]);
    }
}

/// Nine per second is one per 111,111,112 ns: 8 ns too long for a second. Regression: it was reported as 2 s.
#[test]
fn a_window_is_as_long_as_the_policy_states() {
    for (rate, window) in [
        ("9/s", Nanos::SECOND),
        ("7/m", Nanos::MINUTE),
        ("999983/s", Nanos::SECOND),
        ("3/s, burst: 5", Nanos::from_nanos(1_666_666_670)),
        ("1/w", Nanos::from_secs(604_800)),
    ] {
        let engine = engine(&format!("limits: [{{ name: api, rate: {rate} }}]"));
        let (_, fields) = first(&engine, &TestCaller::default());
        assert_eq!(fields.window, window, "{rate}");
    }
}

#[test]
fn a_verdict_has_the_key_of_every_listed_state() {
    let engine = engine(
        "
limits:
  - { name: all, rate: 100/s }
  - { name: user, key: header.user, rate: 100/s }
  - { name: both, key: [header.user, header.plan], rate: 100/s, mode: shadow }
",
    );
    let (verdict, charged) = check(&engine, &with_plan("pro"), CheckMode::Charge);
    assert_eq!(verdict.limits().len(), 3);
    let keys = |fields: &[QuotaFields]| -> Vec<Vec<u8>> {
        fields.iter().map(|fields| fields.key.clone()).collect()
    };
    let own = keys(&charged);
    assert!(own[0].is_empty() && !own[1].is_empty());
    assert!(own[2].len() > own[1].len());
    assert_eq!(
        keys(&check(&engine, &with_plan("pro"), CheckMode::Peek).1),
        own
    );
    let other = TestCaller::named("b").with("header.plan", "pro");
    assert_ne!(
        keys(&check(&engine, &other, CheckMode::Reserve).1)[1],
        own[1]
    );
}
