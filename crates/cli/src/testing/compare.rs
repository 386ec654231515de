//! What was expected of a step beside what came of it.
//!
//! Must not know: how requests are decided, how results are shown.

use tollgate_core::Nanos;
use tollgate_policy::source::{At, SourceLocation};
use tollgate_policy::words_for::{number, span};

use super::model::{Expect, Retry, Shadow};
use super::subject::Seen;

/// Something that came out otherwise than expected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) place: SourceLocation,
    /// What was looked at, by the name of its field.
    pub(super) what: String,
    pub(super) expected: String,
    pub(super) found: String,
    /// What may help to see why.
    pub(super) note: Option<String>,
}

/// What came of all requests of a step.
#[derive(Clone, Debug, Default)]
pub(super) struct Sum {
    pub(super) allowed: u64,
    pub(super) denied: u64,
    pub(super) waits: Vec<Nanos>,
    /// The first that was denied, with its number.
    pub(super) first_denied: Option<(u64, Seen)>,
    pub(super) last_denied: Option<Seen>,
    pub(super) last: Option<Seen>,
    /// Requests that any limit in shadow would have refused.
    pub(super) shadow_denied: u64,
    /// The same by limit.
    pub(super) shadow_by: Vec<(String, u64)>,
}

impl Sum {
    pub(super) fn add(&mut self, number: u64, seen: Seen) {
        if seen.admitted {
            self.allowed += 1;
        } else {
            self.denied += 1;
            if self.first_denied.is_none() {
                self.first_denied = Some((number, seen.clone()));
            }
            self.last_denied = Some(seen.clone());
        }
        self.waits.extend(seen.wait);
        self.shadow_denied += u64::from(!seen.shadow_denied.is_empty());
        for name in &seen.shadow_denied {
            match self.shadow_by.iter_mut().find(|(other, _)| other == name) {
                Some((_, count)) => *count += 1,
                None => self.shadow_by.push((name.clone(), 1)),
            }
        }
        self.last = Some(seen);
    }

    /// Whom questions about one request are about: the last that was denied, or the last one if none was.
    fn asked_about(&self) -> Option<&Seen> {
        self.last_denied.as_ref().or(self.last.as_ref())
    }
}

/// Compares a step's expectations with what came. `matched` is asked only if it is needed.
pub(super) fn compare(
    expect: &Expect,
    sum: &Sum,
    matched: impl FnOnce() -> Vec<String>,
) -> Vec<Failure> {
    let mut failures = Failures(Vec::new());
    failures.check_counts(expect, sum);
    failures.check_one(expect, sum);
    for (name, left) in &expect.remaining {
        let all = sum.last.as_ref().map(|seen| &seen.remaining);
        let found = all.and_then(|all| all.iter().find(|(other, _)| **other == *name.value));
        let what = format!("remaining of {}", name.value);
        let found = found.map(|(_, left)| left);
        failures.check(Some(left), &what, |n| number(*n), found, None);
    }
    if let Some(expected) = &expect.matched {
        let sorted = |mut names: Vec<String>| {
            names.sort();
            names
        };
        let names = expected.value.iter().map(|name| name.value.to_string());
        let expected = At::new(sorted(names.collect()), expected.place);
        let found = sorted(matched());
        let words = |names: &Vec<String>| listed(names);
        failures.check(Some(&expected), "matched", words, Some(&found), None);
    }
    failures.0
}

/// Compares how often candidates differ from their limits.
pub(super) fn compare_candidates(
    expect: &Expect,
    diverged: impl Fn(&str) -> Option<(u64, u64)>,
) -> Vec<Failure> {
    let mut failures = Failures(Vec::new());
    for (name, expected) in &expect.candidates {
        let (would_deny, would_allow) = diverged(&name.value).unzip();
        for (expected, what, found) in [
            (&expected.would_deny, "would_deny", would_deny),
            (&expected.would_allow, "would_allow", would_allow),
        ] {
            let what = format!("{what} of the candidate of {}", name.value);
            let words = |n: &u64| number(*n);
            failures.check(expected.as_ref(), &what, words, found.as_ref(), None);
        }
    }
    failures.0
}

struct Failures(Vec<Failure>);

impl Failures {
    fn check<T: PartialEq>(
        &mut self,
        expected: Option<&At<T>>,
        what: &str,
        words: impl Fn(&T) -> String,
        found: Option<&T>,
        note: Option<&str>,
    ) {
        let Some(expected) = expected else {
            return;
        };
        if Some(&expected.value) != found {
            self.0.push(Failure {
                place: expected.place,
                what: what.to_owned(),
                expected: words(&expected.value),
                found: found.map_or("none".to_owned(), words),
                note: note.map(str::to_owned),
            });
        }
    }

    /// What is said of all requests of the step.
    fn check_counts(&mut self, expect: &Expect, sum: &Sum) {
        let first = first_denied(sum);
        let (words, note) = (|n: &u64| number(*n), first.as_deref());
        let (allowed, denied) = (expect.allowed.as_ref(), expect.denied.as_ref());
        self.check(allowed, "allowed", words, Some(&sum.allowed), note);
        // Where both are said, one failure says it all.
        if allowed.is_none() {
            self.check(denied, "denied", words, Some(&sum.denied), note);
        }
        let words = |waits: &Vec<Nanos>| spans(waits);
        self.check(
            expect.waits.as_ref(),
            "waits",
            words,
            Some(&sum.waits),
            None,
        );
        self.check_shadow(expect, sum);
    }

    /// What is said of one request.
    fn check_one(&mut self, expect: &Expect, sum: &Sum) {
        let nothing = Seen::default();
        let one = sum.asked_about().unwrap_or(&nothing);
        let first = first_denied(sum);
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
        self.check(expected, "retry_after", retry_words, found, note);
    }

    fn check_shadow(&mut self, expect: &Expect, sum: &Sum) {
        let Some(expected) = &expect.shadow_denied else {
            return;
        };
        let words = |n: &u64| number(*n);
        match &expected.value {
            Shadow::Any(count) => {
                let expected = At::new(*count, expected.place);
                self.check(
                    Some(&expected),
                    "shadow_denied",
                    words,
                    Some(&sum.shadow_denied),
                    None,
                );
            }
            Shadow::By(counts) => {
                for (name, count) in counts {
                    let what = format!("shadow_denied by {}", name.value);
                    let found = sum
                        .shadow_by
                        .iter()
                        .find(|(other, _)| **other == *name.value);
                    let found = found.map_or(0, |(_, count)| *count);
                    self.check(Some(count), &what, words, Some(&found), None);
                }
            }
        }
    }
}

/// Words for the first denial of a step, which is mostly what tells why counts differ.
fn first_denied(sum: &Sum) -> Option<String> {
    let (index, seen) = sum.first_denied.as_ref()?;
    let by = match (&seen.limit, &seen.level) {
        (Some(limit), Some(level)) => format!(" by `{limit}`, level `{level}`"),
        (Some(limit), None) => format!(" by `{limit}`"),
        (None, _) => String::new(),
    };
    let reason = seen
        .reason
        .map_or(String::new(), |reason| format!(" ({reason})"));
    let retry = match seen.retry {
        Some(Retry::After(after)) => format!("; it may come again after {}", span(after)),
        Some(Retry::Never) => "; coming again does not help".to_owned(),
        None => String::new(),
    };
    Some(format!(
        "request {} was denied{by}{reason}{retry}",
        number(*index)
    ))
}

fn retry_words(retry: &Retry) -> String {
    match retry {
        Retry::After(after) => span(*after),
        Retry::Never => "never".to_owned(),
    }
}

fn spans(waits: &[Nanos]) -> String {
    const MOST: usize = 12;
    let mut words: Vec<_> = waits.iter().take(MOST).map(|wait| span(*wait)).collect();
    if waits.len() > MOST {
        words.push(format!("and {} more", number((waits.len() - MOST) as u64)));
    }
    listed(&words)
}

fn listed(names: &[String]) -> String {
    match names {
        [] => "none".to_owned(),
        names => names.join(", "),
    }
}
