//! What a verdict says of the quota that decided, so that whoever words it need not guess; and whom a witness hears of.

use std::sync::Mutex;

use tollgate_core::{Nanos, Unit};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::Format;

use crate::testing::{Caller, TestEngine, engine_of};
use crate::{LimitState, Purpose, Seen, Terms, Verdict, Witness};

fn engine(text: &str) -> TestEngine {
    let policy = tollgate_policy::load(text, "test.yaml", Format::Yaml).unwrap();
    engine_of(Rules::compile(&policy, [7; 16]).unwrap()).0
}

/// Writes down what it is told.
#[derive(Default)]
struct Clerk(Mutex<Vec<Noted>>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Noted {
    position: usize,
    key: Vec<u8>,
    cost: u64,
    window: Nanos,
    more_after: Nanos,
}

impl Witness for Clerk {
    fn saw(&self, position: usize, seen: &Seen<'_>) {
        self.0.lock().unwrap().push(Noted {
            position,
            key: seen.key.to_vec(),
            cost: seen.cost,
            window: seen.window,
            more_after: seen.more_after,
        });
    }
}

fn ask(engine: &TestEngine, caller: &Caller, purpose: Purpose) -> (Verdict, Vec<Noted>) {
    let clerk = Clerk::default();
    let verdict = engine.ask(caller, Terms::of(purpose, None), &clerk);
    (verdict, clerk.0.into_inner().unwrap())
}

fn first(engine: &TestEngine, caller: &Caller) -> (LimitState, Noted) {
    let (verdict, noted) = ask(engine, caller, Purpose::Charge);
    (verdict.limits()[0], noted[0].clone())
}

fn on(plan: &str) -> Caller {
    Caller::named("a").with("header.plan", plan)
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
        let caller = Caller::named(repos).with("header.repos", repos);
        let (state, noted) = first(&engine, &caller);
        assert_eq!((state.quota_index(), state.unit()), (None, Unit::Bytes));
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
    let caller = Caller::named("a");
    for left in [3, 2, 1, 0] {
        let (verdict, noted) = ask(&engine, &caller, Purpose::Charge);
        assert_eq!(verdict.limits()[0].status.remaining, left);
        let windows: Vec<u64> = noted.iter().map(|one| one.window.as_secs_ceil()).collect();
        assert_eq!(windows, [2, 60, 0, 0]);
        let more: Vec<Nanos> = noted.iter().map(|one| one.more_after).collect();
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
        let (_, noted) = first(&engine, &Caller::default());
        assert_eq!(noted.window, window, "{rate}");
    }
}

#[test]
fn a_witness_hears_the_key_of_every_state_that_a_verdict_lists() {
    let engine = engine(
        "
limits:
  - { name: all, rate: 100/s }
  - { name: user, key: header.user, rate: 100/s }
  - { name: both, key: [header.user, header.plan], rate: 100/s, mode: shadow }
",
    );
    let (verdict, charged) = ask(&engine, &on("pro"), Purpose::Charge);
    assert_eq!(verdict.limits().len(), 3);
    let positions: Vec<usize> = charged.iter().map(|noted| noted.position).collect();
    assert_eq!(positions, [0, 1, 2]);
    let keys =
        |noted: &[Noted]| -> Vec<Vec<u8>> { noted.iter().map(|one| one.key.clone()).collect() };
    let own = keys(&charged);
    assert!(own[0].is_empty() && !own[1].is_empty());
    assert!(own[2].len() > own[1].len());
    assert_eq!(keys(&ask(&engine, &on("pro"), Purpose::Look).1), own);
    let other = Caller::named("b").with("header.plan", "pro");
    assert_ne!(keys(&ask(&engine, &other, Purpose::Estimate).1)[1], own[1]);
}

#[test]
fn what_is_noted_of_a_generation_is_made_once_and_ends_with_it() {
    let engine = engine("limits: [{ name: api, rate: 1/s }]");
    let before = engine.generation();
    let names = |count| before.noted(|_| vec![count]).cloned();
    assert_eq!(names(1), Some(vec![1]));
    assert_eq!(names(2), Some(vec![1]), "it is there already");
    assert_eq!(before.noted(|_| "another type"), None);
    let policy = tollgate_policy::model::Policy::default();
    engine
        .replace(Rules::compile(&policy, [7; 16]).unwrap())
        .unwrap();
    assert_eq!(engine.generation().noted(|_| vec![3]), Some(&vec![3]));
    assert_eq!(names(4), Some(vec![1]), "verdicts keep theirs");
}
