//! Calls that wait for less than the policy allows.

use tollgate_core::{Nanos, Outcome};
use tollgate_policy::model::{Algorithm, Burst, LimitRule};

use crate::CheckOptions;
use crate::testing::{TestCaller, TestEngine, engine, limit, per_second, quota};

const NO_WAIT: Nanos = Nanos::ZERO;

fn outcome(engine: &TestEngine, max_wait: Option<Nanos>) -> Outcome {
    let options = CheckOptions {
        max_wait,
        ..CheckOptions::default()
    };
    engine.check(&TestCaller::named("alice"), options).outcome()
}

fn waiting_limit(wait: Nanos) -> LimitRule {
    let mut api = limit("api", per_second(2));
    api.wait = Some(wait.into());
    api
}

const fn wait(millis: u64) -> Outcome {
    Outcome::Wait(Nanos::from_millis(millis))
}

const fn denied(millis: u64) -> Outcome {
    Outcome::Deny {
        retry_after: Nanos::from_millis(millis),
    }
}

/// A call that does not wait is denied where others wait, is charged nothing, and takes no turn of those who wait.
#[test]
fn a_call_that_does_not_wait_is_denied_and_charged_nothing() {
    let (engine, clock) = engine(vec![waiting_limit(Nanos::from_secs(2))]);
    assert_eq!(outcome(&engine, Some(NO_WAIT)), Outcome::Allow);
    assert_eq!(outcome(&engine, Some(NO_WAIT)), Outcome::Allow);
    for _ in 0..5 {
        assert_eq!(outcome(&engine, Some(NO_WAIT)), denied(500));
    }
    assert_eq!(
        outcome(&engine, None),
        wait(500),
        "the denials took no turn"
    );
    assert_eq!(outcome(&engine, Some(NO_WAIT)), denied(1_000));
    clock.advance(Nanos::from_secs(1));
    assert_eq!(outcome(&engine, Some(NO_WAIT)), Outcome::Allow);
}

/// Waits of at most a second and of two seconds share one queue, in the order of the calls.
#[test]
fn a_call_can_shorten_the_wait_and_never_lengthen_it() {
    let (engine, _clock) = engine(vec![waiting_limit(Nanos::from_secs(2))]);
    let second = Some(Nanos::SECOND);
    let outcomes: Vec<Outcome> = (0..5).map(|_| outcome(&engine, second)).collect();
    assert_eq!(
        outcomes,
        [
            Outcome::Allow,
            Outcome::Allow,
            wait(500),
            wait(1_000),
            denied(500)
        ]
    );
    assert_eq!(outcome(&engine, None), wait(1_500));
    assert_eq!(outcome(&engine, second), denied(1_000));
    let hour = Some(Nanos::HOUR);
    assert_eq!(outcome(&engine, hour), wait(2_000));
    assert_eq!(
        outcome(&engine, hour),
        denied(500),
        "not above the policy's"
    );
    let (without, _clock) = crate::testing::engine(vec![limit("api", per_second(1))]);
    assert_eq!(outcome(&without, hour), Outcome::Allow);
    assert_eq!(outcome(&without, hour), denied(1_000), "it has no wait");
}

/// A leaky queue waits without a `wait` of the policy.
#[test]
fn a_leaky_queue_is_shortened_too() {
    let mut api = limit("api", quota(Algorithm::LeakyQueue, &[(1, Nanos::SECOND)]));
    api.quota.value.burst = Some(Burst::Units(3).into());
    let (engine, _clock) = engine(vec![api]);
    assert_eq!(outcome(&engine, Some(NO_WAIT)), Outcome::Allow);
    assert_eq!(outcome(&engine, Some(NO_WAIT)), denied(1_000));
    assert_eq!(outcome(&engine, Some(Nanos::SECOND)), wait(1_000));
    assert_eq!(outcome(&engine, Some(Nanos::SECOND)), denied(1_000));
    assert_eq!(outcome(&engine, None), wait(2_000));
}
