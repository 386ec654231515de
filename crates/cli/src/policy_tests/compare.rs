//! Compares the expectations of a step with the observed decisions.
//!
//! Must not know: how requests are decided, how results are printed.

use tollgate_core::Nanos;
use tollgate_policy::humanize::{format_duration, format_number};
use tollgate_policy::source::{Located, SourceLocation};

use super::model::{Expectations, ExpectedRetry, ExpectedShadowDenials};
use super::target::Observation;

/// An expectation that was not met.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ExpectationFailure {
    pub(super) place: SourceLocation,
    /// The field of the expectation.
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
    /// A hint at the reason.
    pub(super) note: Option<String>,
}

/// The decisions on all requests of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct StepTotals {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) waits: Vec<Nanos>,
    /// The first denied request, with its number.
    pub(super) first_denied: Option<(u64, Observation)>,
    pub(super) last_denied: Option<Observation>,
    pub(super) last: Option<Observation>,
    /// Requests that a limit in shadow mode would have denied.
    pub(super) shadow_denied: u64,
    /// The same by limit.
    pub(super) shadow_by: Vec<(String, u64)>,
}

impl StepTotals {
    pub(super) fn add(&mut self, number: u64, observation: Observation) {
        if observation.admitted {
            self.allowed += 1;
        } else {
            self.denied += 1;
            if self.first_denied.is_none() {
                self.first_denied = Some((number, observation.clone()));
            }
            self.last_denied = Some(observation.clone());
        }
        self.waits.extend(observation.wait);
        self.shadow_denied += u64::from(!observation.shadow_denied.is_empty());
        for name in &observation.shadow_denied {
            match self.shadow_by.iter_mut().find(|(other, _)| other == name) {
                Some((_, count)) => *count += 1,
                None => self.shadow_by.push((name.clone(), 1)),
            }
        }
        self.last = Some(observation);
    }

    /// The request that expectations about one request refer to: the last denied one, or the last one if none was denied.
    fn described_request(&self) -> Option<&Observation> {
        self.last_denied.as_ref().or(self.last.as_ref())
    }
}

/// Compares the expectations of a step with its totals. Calls `matched` only if the step expects matched limits.
pub(super) fn compare(
    expect: &Expectations,
    sum: &StepTotals,
    matched: impl FnOnce() -> Vec<String>,
) -> Vec<ExpectationFailure> {
    let mut failures = FailureList(Vec::new());
    failures.check_counts(expect, sum);
    failures.check_one(expect, sum);
    for (name, left) in &expect.remaining {
        let all = sum.last.as_ref().map(|observation| &observation.remaining);
        let found = all.and_then(|all| all.iter().find(|(other, _)| **other == *name.value));
        let what = format!("remaining of {}", name.value);
        let found = found.map(|(_, left)| left);
        failures.check(Some(left), &what, |n| format_number(*n), found, None);
    }
    if let Some(expected) = &expect.matched {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let names = expected.value.iter().map(|name| name.value.to_string());
        let expected = Located::new(sorted(names.collect()), expected.location);
        let found = sorted(matched());
        let render = |names: &Vec<String>| join_names(names);
        failures.check(Some(&expected), "matched", render, Some(&found), None);
    }
    failures.0
}

/// Compares how often candidates differ from their limits.
pub(super) fn compare_candidates(
    expect: &Expectations,
    diverged: impl Fn(&str) -> Option<(u64, u64)>,
) -> Vec<ExpectationFailure> {
    let mut failures = FailureList(Vec::new());
    for (name, expected) in &expect.candidates {
        let (would_deny, would_allow) = diverged(&name.value).unzip();
        for (expected, what, found) in [
            (&expected.would_deny, "would_deny", would_deny),
            (&expected.would_allow, "would_allow", would_allow),
        ] {
            let what = format!("{what} of the candidate of {}", name.value);
            let render = |n: &u64| format_number(*n);
            failures.check(expected.as_ref(), &what, render, found.as_ref(), None);
        }
    }
    failures.0
}

struct FailureList(Vec<ExpectationFailure>);

impl FailureList {
    fn check<T: PartialEq>(
        &mut self,
        expected: Option<&Located<T>>,
        what: &str,
        render: impl Fn(&T) -> String,
        found: Option<&T>,
        note: Option<&str>,
    ) {
        let Some(expected) = expected else {
            return;
        };
        if Some(&expected.value) != found {
            self.0.push(ExpectationFailure {
                place: expected.location,
                what: what.to_owned(),
                expected: render(&expected.value),
                found: found.map_or("none".to_owned(), render),
                note: note.map(str::to_owned),
            });
        }
    }

    /// Checks the expectations about all requests of the step.
    fn check_counts(&mut self, expect: &Expectations, sum: &StepTotals) {
        let first = describe_first_denial(sum);
        let (render, note) = (|n: &u64| format_number(*n), first.as_deref());
        let (allowed, denied) = (expect.allowed.as_ref(), expect.denied.as_ref());
        self.check(allowed, "allowed", render, Some(&sum.allowed), note);
        // If both are expected, one failure is enough.
        if allowed.is_none() {
            self.check(denied, "denied", render, Some(&sum.denied), note);
        }
        let render = |waits: &Vec<Nanos>| describe_waits(waits);
        self.check(
            expect.waits.as_ref(),
            "waits",
            render,
            Some(&sum.waits),
            None,
        );
        self.check_shadow(expect, sum);
    }

    /// Checks the expectations about one request.
    fn check_one(&mut self, expect: &Expectations, sum: &StepTotals) {
        let nothing = Observation::default();
        let one = sum.described_request().unwrap_or(&nothing);
        let first = describe_first_denial(sum);
        let note = first.as_deref();
        for (expected, what, found) in [
            (&expect.limit, "limit", &one.limit),
            (&expect.level, "level", &one.level),
            (&expect.message, "message", &one.message),
        ] {
            let found: Option<Box<str>> = found.as_deref().map(Into::into);
            self.check(
                expected.as_ref(),
                what,
                ToString::to_string,
                found.as_ref(),
                note,
            );
        }
        let (expected, found) = (expect.reason.as_ref(), one.reason.as_ref());
        self.check(expected, "reason", ToString::to_string, found, note);
        let status = one.status.map(u64::from);
        let expected = expect.status.as_ref();
        self.check(
            expected,
            "status",
            ToString::to_string,
            status.as_ref(),
            note,
        );
        let (expected, found) = (expect.retry_after.as_ref(), one.retry.as_ref());
        self.check(expected, "retry_after", describe_retry, found, note);
    }

    fn check_shadow(&mut self, expect: &Expectations, sum: &StepTotals) {
        let Some(expected) = &expect.shadow_denied else {
            return;
        };
        let render = |n: &u64| format_number(*n);
        match &expected.value {
            ExpectedShadowDenials::Any(count) => {
                let expected = Located::new(*count, expected.location);
                self.check(
                    Some(&expected),
                    "shadow_denied",
                    render,
                    Some(&sum.shadow_denied),
                    None,
                );
            }
            ExpectedShadowDenials::By(counts) => {
                for (name, count) in counts {
                    let what = format!("shadow_denied by {}", name.value);
                    let found = sum
                        .shadow_by
                        .iter()
                        .find(|(other, _)| **other == *name.value);
                    let found = found.map_or(0, |(_, count)| *count);
                    self.check(Some(count), &what, render, Some(&found), None);
                }
            }
        }
    }
}

/// Describes the first denial of a step, which mostly explains why counts differ.
fn describe_first_denial(sum: &StepTotals) -> Option<String> {
    let (index, observation) = sum.first_denied.as_ref()?;
    let by = match (&observation.limit, &observation.level) {
        (Some(limit), Some(level)) => format!(" by `{limit}`, level `{level}`"),
        (Some(limit), None) => format!(" by `{limit}`"),
        (None, _) => String::new(),
    };
    let reason = observation
        .reason
        .map_or(String::new(), |reason| format!(" ({reason})"));
    let retry = match observation.retry {
        Some(ExpectedRetry::After(after)) => {
            format!("; retry after {}", format_duration(after))
        }
        Some(ExpectedRetry::Never) => "; a retry does not help".to_owned(),
        None => String::new(),
    };
    Some(format!(
        "request {} was denied{by}{reason}{retry}",
        format_number(*index)
    ))
}

fn describe_retry(retry: &ExpectedRetry) -> String {
    match retry {
        ExpectedRetry::After(after) => format_duration(*after),
        ExpectedRetry::Never => "never".to_owned(),
    }
}

fn describe_waits(waits: &[Nanos]) -> String {
    const MOST: usize = 12;
    let mut render: Vec<_> = waits
        .iter()
        .take(MOST)
        .map(|wait| format_duration(*wait))
        .collect();
    if waits.len() > MOST {
        render.push(format!(
            "and {} more",
            format_number((waits.len() - MOST) as u64)
        ));
    }
    join_names(&render)
}

fn join_names(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
