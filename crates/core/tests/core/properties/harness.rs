//! Runs a checker over generated inputs: on real code, where it must hold, and on a wrong variant, which it must catch.

use std::fmt::Debug;
use std::panic::Location;

use proptest::strategy::Strategy;
use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

/// A violation that a checker found.
#[derive(Debug)]
pub(crate) struct Violation(pub(crate) String);

/// The result of a checker.
pub(crate) type CheckResult = Result<(), Violation>;

const MARK: &str = "violation: ";

/// Returns a violation from a checker unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err($crate::properties::harness::Violation(format!($($message)+)));
        }
    };
}
pub(crate) use ensure;

/// Asserts that the checker holds for all generated inputs.
#[track_caller]
pub(crate) fn assert_holds<S: Strategy>(inputs: &S, check: impl Fn(S::Value) -> CheckResult)
where
    S::Value: Debug,
{
    let config = Config {
        source_file: Some(Location::caller().file()),
        ..Config::default()
    };
    let result = TestRunner::new(config).run(inputs, |input| to_test_result(check(input)));
    if let Err(error) = result {
        panic!("{error}");
    }
}

/// Asserts that the checker catches the wrong variant. The inputs are always the same, so that a control never fails by chance.
#[track_caller]
pub(crate) fn assert_caught<S: Strategy>(inputs: &S, check: impl Fn(S::Value) -> CheckResult)
where
    S::Value: Debug,
{
    let config = Config {
        cases: 2_000,
        failure_persistence: None,
        max_shrink_iters: 0,
        ..Config::default()
    };
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let result =
        TestRunner::new_with_rng(config, rng).run(inputs, |input| to_test_result(check(input)));
    match result {
        Err(TestError::Fail(reason, _)) if reason.message().starts_with(MARK) => {}
        Err(other) => panic!("the wrong variant broke down instead of being caught: {other}"),
        Ok(()) => panic!("the wrong variant passes: this checker proves nothing"),
    }
}

fn to_test_result(checked: CheckResult) -> Result<(), TestCaseError> {
    checked.map_err(|violation| TestCaseError::fail(format!("{MARK}{}", violation.0)))
}
