//! Requests that are read ahead get the verdicts that they would get one by one.

use tollgate_core::Nanos;
use tollgate_policy::attributes::Attributes;
use tollgate_policy::model::{Algorithm, LimitRule, Penalty};
use tollgate_testkit::allocation::calls;

use crate::testing::{SeededRng, TestCaller, TestEngine, engine, limit, per_second, places, quota};
use crate::{CheckMode, CheckOptions};

/// Limits with states of every size, one of which penalises denials.
fn limits() -> Vec<LimitRule> {
    let minute = Nanos::MINUTE;
    let mut punishing = limit("block", per_second(9));
    punishing.penalty = Penalty::Block(Nanos::SECOND).into();
    vec![
        limit("bucket", per_second(5)),
        limit("window", quota(Algorithm::FixedWindow, &[(60, minute)])),
        limit("log", quota(Algorithm::SlidingLog, &[(80, minute)])),
        limit("permits", places(200)),
        punishing,
    ]
}

/// The parts of a verdict that depend on the states.
fn summary(verdict: &crate::Verdict) -> String {
    format!("{:?} {:?}", verdict.outcome(), verdict.limits())
}

fn one_by_one(engine: &TestEngine, requests: &[(&dyn Attributes, CheckOptions)]) -> Vec<String> {
    let check = |(request, options): &(&dyn Attributes, CheckOptions)| {
        summary(&engine.check(*request, *options))
    };
    requests.iter().map(check).collect()
}

fn read_ahead(engine: &TestEngine, requests: &[(&dyn Attributes, CheckOptions)]) -> Vec<String> {
    let mut all = Vec::new();
    engine.check_each(requests.iter().copied(), |verdict| {
        all.push(summary(&verdict))
    });
    all
}

#[test]
fn requests_that_are_read_ahead_get_the_verdicts_of_single_checks() {
    let (single, single_clock) = engine(limits());
    let (ahead, ahead_clock) = engine(limits());
    let callers = ["ada", "bob", "eve"].map(TestCaller::named);
    let mut random = SeededRng::new(16);
    let mut denied = 0;
    for _ in 0..400 {
        let len = random.below(11);
        let request = |_| {
            let caller: &dyn Attributes = &callers[usize::try_from(random.below(3)).unwrap()];
            let mode = match random.below(8) {
                0 => CheckMode::Peek,
                1 => CheckMode::Refund,
                _ => CheckMode::Charge,
            };
            (caller, CheckOptions::new(mode).with_cost(random.below(4)))
        };
        let requests: Vec<_> = (0..len).map(request).collect();
        let expected = one_by_one(&single, &requests);
        assert_eq!(read_ahead(&ahead, &requests), expected);
        denied += expected
            .iter()
            .filter(|one| one.starts_with("Deny"))
            .count();
        let span = Nanos::from_millis(random.below(300));
        single_clock.advance(span);
        ahead_clock.advance(span);
    }
    assert!(denied > 100, "{denied} denials show that charges are seen");
    for name in ["bucket", "window", "log", "permits", "block"] {
        assert_eq!(ahead.totals(name), single.totals(name), "{name}");
    }
}

#[test]
fn a_warm_pipeline_allocates_nothing() {
    let (engine, _clock) = engine(
        (0..3)
            .map(|n| limit(&format!("{n}"), per_second(50)))
            .collect(),
    );
    let caller = TestCaller::named("ada");
    let pipeline = || (0..10).map(|_| (&caller as &dyn Attributes, CheckOptions::default()));
    engine.check_each(pipeline(), drop);
    let mut admitted = 0;
    let count = calls(|| {
        for _ in 0..20 {
            engine.check_each(pipeline(), |verdict| {
                admitted += u32::from(verdict.is_admitted());
            });
        }
    });
    assert_eq!((count, admitted), (0, 40));
}
