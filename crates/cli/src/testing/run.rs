//! Runs tests: each on a policy of its own, step by step.
//!
//! Must not know: how files are read, how results are shown.

use tollgate_policy::source::{At, Diagnostic};
use tollgate_policy::words::{nearest, quoted};

use super::compare::{Failure, Sum, compare, compare_candidates};
use super::model::{Expect, Shadow, Step, Test};
use super::policies::Tested;
use super::subject::{Sent, Subject};

/// What came of a test.
#[derive(Debug)]
pub(super) struct Ran {
    pub(super) name: String,
    pub(super) line: u32,
    /// With the number of its step, counted from one.
    pub(super) failures: Vec<(usize, Failure)>,
}

/// Runs one test. It stops at the first step that fails, because what follows builds on it.
pub(super) fn run(test: &Test, policy: &Tested) -> Ran {
    let mut ran = Ran {
        name: test.name.value.to_string(),
        line: test.name.place.line,
        failures: Vec::new(),
    };
    let mut subject = match policy.put_to_work(test.start) {
        Ok(subject) => subject,
        Err(message) => {
            let failure = broken(test.name.place, message);
            ran.failures.push((1, failure));
            return ran;
        }
    };
    for (index, step) in test.steps.iter().enumerate() {
        let now = test.start.after(step.at);
        subject.set_time(now);
        let failures = take(step, &mut *subject);
        ran.failures
            .extend(failures.into_iter().map(|failure| (index + 1, failure)));
        if !ran.failures.is_empty() {
            break;
        }
    }
    ran
}

/// Takes one step.
fn take(step: &Step, subject: &mut dyn Subject) -> Vec<Failure> {
    let stopped = |message| vec![broken(step.place, message)];
    if let Some(name) = &step.finish
        && let Err(message) = subject.finish(&name.value, &step.respond)
    {
        return stopped(message);
    }
    let mut sum = Sum::default();
    for number in 1..=step.send {
        let sent = Sent {
            asked: &step.asked,
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
        subject.matched(&step.asked, step.send.max(1))
    });
    let candidates = compare_candidates(&step.expect, |limit| subject.diverged(limit));
    failures.extend(candidates);
    failures
}

/// A step that could not be taken.
fn broken(place: tollgate_policy::source::SourceLocation, message: String) -> Failure {
    Failure {
        place,
        what: "step".to_owned(),
        expected: "that it can be taken".to_owned(),
        found: message,
        note: None,
    }
}

/// Names in expectations that no limit has: a test that can only fail, or worse, pass.
pub(super) fn unknown_names(tests: &[Test], known: &[String]) -> Vec<Diagnostic> {
    let mut problems = Vec::new();
    let mut check = |name: &At<Box<str>>| {
        if known.iter().any(|other| **other == *name.value) {
            return;
        }
        let help = match nearest(&name.value, known.iter().map(String::as_str)) {
            Some(meant) => format!("did you mean `{meant}`?"),
            None => format!("there are {}", known.join(", ")),
        };
        let message = format!("the policy has no limit {}", quoted(&name.value));
        problems.push(Diagnostic::new(name.place, message, help));
    };
    for step in tests.iter().flat_map(|test| &test.steps) {
        let Expect {
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
        if let Some(Shadow::By(counts)) = shadow_denied.as_ref().map(|shadow| &shadow.value) {
            counts.iter().for_each(|(name, _)| check(name));
        }
    }
    problems
}
