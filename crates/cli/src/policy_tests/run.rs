//! Runs tests: each on a policy of its own, step by step.
//!
//! Must not know: how files are read, how results are shown.

use tollgate_policy::grammar::{nearest_name, quote};
use tollgate_policy::source::{Diagnostic, Located};

use super::compare::{ExpectationFailure, StepTotals, compare, compare_candidates};
use super::model::{Expectations, ExpectedShadowDenials, PolicyTest, TestStep};
use super::target::{TestRequest, TestTarget};
use super::tested_policy::TestedPolicy;

/// What came of a test.
#[derive(Debug)]
pub(super) struct TestResult {
    pub(super) name: String,
    pub(super) line: u32,
    /// With the number of its step, counted from one.
    pub(super) failures: Vec<(usize, ExpectationFailure)>,
}

/// Runs one test. It stops at the first step that fails, because what follows builds on it.
pub(super) fn run(test: &PolicyTest, policy: &TestedPolicy) -> TestResult {
    let mut ran = TestResult {
        name: test.name.value.to_string(),
        line: test.name.location.line,
        failures: Vec::new(),
    };
    let mut subject = match policy.start(test.start) {
        Ok(subject) => subject,
        Err(message) => {
            let failure = step_failure(test.name.location, message);
            ran.failures.push((1, failure));
            return ran;
        }
    };
    for (index, step) in test.steps.iter().enumerate() {
        let now = test.start.after(step.at);
        subject.set_time(now);
        let failures = run_step(step, &mut *subject);
        ran.failures
            .extend(failures.into_iter().map(|failure| (index + 1, failure)));
        if !ran.failures.is_empty() {
            break;
        }
    }
    ran
}

/// Takes one step.
fn run_step(step: &TestStep, subject: &mut dyn TestTarget) -> Vec<ExpectationFailure> {
    let stopped = |message| vec![step_failure(step.place, message)];
    if let Some(name) = &step.finish
        && let Err(message) = subject.finish_held(&name.value, &step.respond)
    {
        return stopped(message);
    }
    let mut sum = StepTotals::default();
    for number in 1..=step.send {
        let sent = TestRequest {
            template: &step.template,
            number,
            cost: step.cost,
            reply: &step.respond,
            hold: step.hold.as_ref().map(|name| &*name.value),
        };
        match subject.send(&sent) {
            Ok(seen) => sum.add(number, seen),
            Err(message) => return stopped(format!("request {number}: {message}")),
        }
    }
    let mut failures = compare(&step.expect, &sum, || {
        subject.matching_limits(&step.template, step.send.max(1))
    });
    let candidates = compare_candidates(&step.expect, |limit| subject.divergence(limit));
    failures.extend(candidates);
    failures
}

/// A step that could not be taken.
fn step_failure(
    place: tollgate_policy::source::SourceLocation,
    message: String,
) -> ExpectationFailure {
    ExpectationFailure {
        place,
        what: "step".to_owned(),
        expected: "that it can be taken".to_owned(),
        found: message,
        note: None,
    }
}

/// Names in expectations that no limit has: a test that can only fail, or worse, pass.
pub(super) fn unknown_names(tests: &[PolicyTest], known: &[String]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut check = |name: &Located<Box<str>>| {
        if known.iter().any(|other| **other == *name.value) {
            return;
        }
        let help = match nearest_name(&name.value, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there are {}", known.join(", ")),
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
