//! Runs tests, each with its own engine, step by step.
//!
//! Must not know: how files are read, how results are printed.

use tollgate_policy::grammar::{nearest_name, quote};
use tollgate_policy::source::{Diagnostic, Located};

use super::compare::{ExpectationFailure, StepTotals, compare, compare_candidates};
use super::model::{Expectations, ExpectedShadowDenials, PolicyTest, TestStep};
use super::target::{TestRequest, TestTarget};
use super::tested_policy::TestedPolicy;

/// The result of one test.
#[derive(Debug)]
pub(super) struct TestResult {
    pub(super) name: String,
    pub(super) line: u32,
    /// The failures, with the number of their step, counted from one.
    pub(super) failures: Vec<(usize, ExpectationFailure)>,
}

/// Runs one test. Stops at the first step that fails, because later steps depend on it.
pub(super) fn run(test: &PolicyTest, policy: &TestedPolicy) -> TestResult {
    let mut result = TestResult {
        name: test.name.value.to_string(),
        line: test.name.location.line,
        failures: Vec::new(),
    };
    let mut target = match policy.start(test.start) {
        Ok(target) => target,
        Err(message) => {
            let failure = step_failure(test.name.location, message);
            result.failures.push((1, failure));
            return result;
        }
    };
    for (index, step) in test.steps.iter().enumerate() {
        let now = test.start.after(step.at);
        target.set_time(now);
        let failures = run_step(step, &mut *target);
        result
            .failures
            .extend(failures.into_iter().map(|failure| (index + 1, failure)));
        if !result.failures.is_empty() {
            break;
        }
    }
    result
}

/// Runs one step.
fn run_step(step: &TestStep, target: &mut dyn TestTarget) -> Vec<ExpectationFailure> {
    let stopped = |message| vec![step_failure(step.place, message)];
    if let Some(name) = &step.finish
        && let Err(message) = target.finish_held(&name.value, &step.respond)
    {
        return stopped(message);
    }
    let mut totals = StepTotals::default();
    for number in 1..=step.send {
        let test_request = TestRequest {
            template: &step.template,
            number,
            cost: step.cost,
            reply: &step.respond,
            hold: step.hold.as_ref().map(|name| &*name.value),
        };
        match target.send(&test_request) {
            Ok(observation) => totals.add(number, observation),
            Err(message) => return stopped(format!("request {number}: {message}")),
        }
    }
    let mut failures = compare(&step.expect, &totals, || {
        target.matching_limits(&step.template, step.send.max(1))
    });
    let candidates = compare_candidates(&step.expect, |limit| target.divergence(limit));
    failures.extend(candidates);
    failures
}

/// The failure of a step that could not run.
fn step_failure(
    place: tollgate_policy::source::SourceLocation,
    message: String,
) -> ExpectationFailure {
    ExpectationFailure {
        place,
        what: "step".to_owned(),
        expected: "that it runs".to_owned(),
        found: message,
        note: None,
    }
}

/// Reports limit names in expectations that the policy does not have.
pub(super) fn unknown_names(tests: &[PolicyTest], known: &[String]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut check = |name: &Located<Box<str>>| {
        if known.iter().any(|other| **other == *name.value) {
            return;
        }
        let help = match nearest_name(&name.value, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("the policy has {}", known.join(", ")),
        };
        let message = format!("the policy has no limit {}", quote(&name.value));
        problems.push(Diagnostic::new(name.location, message, help));
    };
    for step in tests.iter().flat_map(|test| &test.steps) {
        let Expectations {
            limit,
            remaining,
            matched,
            shadow_denied,
            candidates,
            ..
        } = &step.expect;
        limit.iter().for_each(&mut check);
        remaining.iter().for_each(|(name, _)| check(name));
        candidates.iter().for_each(|(name, _)| check(name));
        let matched = matched.iter().flat_map(|matched| &matched.value);
        matched.for_each(&mut check);
        if let Some(ExpectedShadowDenials::By(counts)) =
            shadow_denied.as_ref().map(|shadow| &shadow.value)
        {
            counts.iter().for_each(|(name, _)| check(name));
        }
    }
    problems
}
