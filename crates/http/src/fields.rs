//! `RateLimit-Policy`, `RateLimit` and `Retry-After`, as draft-ietf-httpapi-ratelimit-headers-11 and RFC 9110 have them.
//!
//! Must not know: which header library carries them. Both values are structured fields (RFC 9651), built by hand
//! because there are two shapes of them and the policy's is built once.

use std::fmt;
use std::fmt::Write as _;

use tollgate_core::{Nanos, Outcome, Status, Unit};

/// The largest Integer of RFC 9651: fifteen digits.
const MAX_INTEGER: u64 = 999_999_999_999_999;
const MAX_NAME_LEN: usize = 128;

/// What clients are told about one limit: its name, its quota, and what is left of it.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, Status, Unit};
/// use tollgate_http::Policy;
///
/// let policy = Policy::new("per-user", 100, Nanos::MINUTE, Unit::Requests)?;
/// assert_eq!(policy.policy_field(), r#""per-user";q=100;w=60"#);
///
/// let status = Status { limit: 100, remaining: 5, reset_after: Nanos::from_millis(57_001) };
/// assert_eq!(policy.limit_field(Outcome::Allow, &status, Nanos::ZERO), r#""per-user";r=5;t=58"#);
/// # Ok::<(), tollgate_http::InvalidPolicyName>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Policy {
    name: Box<str>,
    /// The name as a structured-field String, quotes included.
    quoted: Box<str>,
    /// The whole `RateLimit-Policy` value: the draft wants it stable over responses, so it is built once.
    policy_field: Box<str>,
}

impl Policy {
    /// A policy of `quota` units in each `window`. A window of zero is left out: the draft has no such window.
    ///
    /// # Errors
    /// The name must be 1 to 128 printable ASCII characters, which is what a structured-field String can hold.
    pub fn new(
        name: &str,
        quota: u64,
        window: Nanos,
        unit: Unit,
    ) -> Result<Self, InvalidPolicyName> {
        let quoted = quote(name)?;
        let mut field = format!("{quoted};q={}", quota.min(MAX_INTEGER));
        if let Some(unit) = quota_unit(unit) {
            push(&mut field, format_args!(";qu=\"{unit}\""));
        }
        if !window.is_zero() {
            // Rounded up: the same quota over a longer window never promises more than there is.
            push(&mut field, format_args!(";w={}", seconds(window)));
        }
        Ok(Self {
            name: name.into(),
            quoted: quoted.into(),
            policy_field: field.into(),
        })
    }

    /// The policy's name, as `violated-policies` lists it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The value of `RateLimit-Policy`.
    #[must_use]
    pub fn policy_field(&self) -> &str {
        &self.policy_field
    }

    /// The value of `RateLimit` after a decision. `more_after` is the time until one more unit is there; it is said
    /// where nothing remains.
    ///
    /// `t` is the `Retry-After` of a denial, so that the two can never disagree; else the time until more is there
    /// if nothing remains; else the time until all of it is back.
    #[must_use]
    pub fn limit_field(&self, outcome: Outcome, status: &Status, more_after: Nanos) -> String {
        let t = match retry_after(outcome) {
            Some(retry_after) => Some(retry_after),
            // A limit of zero never has more: there is no time to name.
            None if status.remaining == 0 && more_after.is_zero() => None,
            None if status.remaining == 0 => Some(seconds(more_after)),
            None => Some(seconds(status.reset_after)),
        };
        let mut field = format!("{};r={}", self.quoted, status.remaining.min(MAX_INTEGER));
        if let Some(t) = t {
            push(&mut field, format_args!(";t={t}"));
        }
        field
    }
}

/// The value of `Retry-After` in whole seconds: rounded up, because early is wrong, and at least one. `None` where
/// there is nothing to wait for, or waiting does not help.
///
/// ```
/// use tollgate_core::{Nanos, Outcome};
/// use tollgate_http::retry_after;
///
/// let denied = |millis| Outcome::Deny { retry_after: Nanos::from_millis(millis) };
/// assert_eq!(retry_after(denied(100)), Some(1));
/// assert_eq!(retry_after(denied(1_001)), Some(2));
/// assert_eq!(retry_after(Outcome::Allow), None);
/// assert_eq!(retry_after(Outcome::Never), None);
/// ```
#[must_use]
pub const fn retry_after(outcome: Outcome) -> Option<u64> {
    match outcome {
        Outcome::Deny { retry_after } if retry_after.is_zero() => Some(1),
        Outcome::Deny { retry_after } => Some(seconds(retry_after)),
        Outcome::Allow | Outcome::Wait(_) | Outcome::Never => None,
    }
}

/// A policy name that no structured field can carry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidPolicyName {
    /// The name that was given.
    pub name: String,
    reason: NameReason,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NameReason {
    Empty,
    TooLong,
    NotPrintableAscii(char),
}

impl fmt::Display for InvalidPolicyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "name: {:?} is not valid: ", self.name)?;
        match self.reason {
            NameReason::Empty => f.write_str("it must not be empty"),
            NameReason::TooLong => write!(f, "it is longer than {MAX_NAME_LEN} characters"),
            NameReason::NotPrintableAscii(c) => {
                write!(f, "{c:?} is not a printable ASCII character")
            }
        }
    }
}

impl std::error::Error for InvalidPolicyName {}

/// A span as an Integer of whole seconds, rounded up. The longest span is eleven digits, so nothing is clamped.
const fn seconds(span: Nanos) -> u64 {
    span.as_secs_ceil()
}

/// The draft's name for a unit; nothing for requests, its default.
const fn quota_unit(unit: Unit) -> Option<&'static str> {
    match unit {
        Unit::Requests => None,
        Unit::Bytes => Some("content-bytes"),
        other => Some(other.name()),
    }
}

/// The name as a String of RFC 9651, quotes included.
fn quote(name: &str) -> Result<String, InvalidPolicyName> {
    let invalid = |reason| InvalidPolicyName {
        name: name.chars().take(MAX_NAME_LEN).collect(),
        reason,
    };
    if name.is_empty() {
        return Err(invalid(NameReason::Empty));
    }
    if name.len() > MAX_NAME_LEN {
        return Err(invalid(NameReason::TooLong));
    }
    let mut quoted = String::with_capacity(name.len().saturating_add(2));
    quoted.push('"');
    for c in name.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            ' '..='~' => quoted.push(c),
            _ => return Err(invalid(NameReason::NotPrintableAscii(c))),
        }
    }
    quoted.push('"');
    Ok(quoted)
}

fn push(field: &mut String, text: fmt::Arguments<'_>) {
    // Writing to a String cannot fail; its `Result` belongs to the trait.
    field.write_fmt(text).unwrap_or_default();
}

#[cfg(test)]
mod tests {
    use super::*;
    use sfv::{List, ListEntry, Parser};

    fn status(remaining: u64, reset_after: Nanos) -> Status {
        Status {
            limit: 20,
            remaining,
            reset_after,
        }
    }

    fn demo() -> Policy {
        Policy::new("demo", 20, Nanos::from_secs(2), Unit::Requests).unwrap()
    }

    fn denied(retry_after: Nanos) -> Outcome {
        Outcome::Deny { retry_after }
    }

    /// The one member of a list of one, as (name, parameters), read by an independent parser.
    fn parsed(field: &str) -> (String, Vec<(String, String)>) {
        let list = Parser::new(field)
            .parse::<List>()
            .unwrap_or_else(|error| panic!("{field}: {error}"));
        let [ListEntry::Item(item)] = list.as_slice() else {
            panic!("{field}: not a list of one item");
        };
        let name = item.bare_item.as_string().unwrap().as_str().to_owned();
        let parameter = |value: &sfv::BareItem| match value.as_integer() {
            Some(integer) => i64::from(integer).to_string(),
            None => value.as_string().unwrap().as_str().to_owned(),
        };
        let parameters = item.params.iter();
        let parameters = parameters.map(|(k, v)| (k.as_str().to_owned(), parameter(v)));
        (name, parameters.collect())
    }

    #[test]
    fn the_policy_field_is_the_drafts() {
        let field = |name, quota, window, unit| {
            let policy = Policy::new(name, quota, window, unit).unwrap();
            policy.policy_field().to_owned()
        };
        let day = field("day", 1_000, Nanos::DAY, Unit::Requests);
        assert_eq!(day, r#""day";q=1000;w=86400"#);
        let bytes = field("up", 65_536, Nanos::from_secs(10), Unit::Bytes);
        assert_eq!(bytes, r#""up";q=65536;qu="content-bytes";w=10"#);
        let tokens = field("llm", 9, Nanos::MINUTE, Unit::Tokens);
        assert_eq!(tokens, r#""llm";q=9;qu="tokens";w=60"#);
    }

    #[test]
    fn a_window_is_whole_seconds_rounded_up_and_never_zero() {
        let window = |window| {
            let policy = Policy::new("p", 5, window, Unit::Requests).unwrap();
            policy.policy_field().to_owned()
        };
        assert_eq!(window(Nanos::from_nanos(1)), r#""p";q=5;w=1"#);
        assert_eq!(window(Nanos::from_millis(2_001)), r#""p";q=5;w=3"#);
        assert_eq!(window(Nanos::ZERO), r#""p";q=5"#);
    }

    #[test]
    fn t_of_a_denial_is_its_retry_after_even_where_something_remains() {
        let reset = Nanos::from_secs(2);
        for (wait, t) in [(0, 1), (1, 1), (999, 1), (1_000, 1), (1_001, 2)] {
            let outcome = denied(Nanos::from_millis(wait));
            assert_eq!(retry_after(outcome), Some(t));
            let field = demo().limit_field(outcome, &status(3, reset), Nanos::ZERO);
            assert_eq!(field, format!(r#""demo";r=3;t={t}"#));
        }
    }

    #[test]
    fn t_of_an_admission_is_the_refill_or_the_next_unit_if_nothing_remains() {
        let field = |status, more_after| demo().limit_field(Outcome::Allow, &status, more_after);
        let (half, two) = (Nanos::from_millis(500), Nanos::from_secs(2));
        assert_eq!(field(status(19, half), Nanos::ZERO), r#""demo";r=19;t=1"#);
        assert_eq!(field(status(0, two), half), r#""demo";r=0;t=1"#);
        let untouched = field(status(20, Nanos::ZERO), Nanos::ZERO);
        assert_eq!(untouched, r#""demo";r=20;t=0"#);
    }

    #[test]
    fn where_waiting_does_not_help_no_time_to_retry_is_named() {
        let never = demo().limit_field(Outcome::Never, &status(20, Nanos::ZERO), Nanos::ZERO);
        assert_eq!(never, r#""demo";r=20;t=0"#);
        let closed = Policy::new("closed", 0, Nanos::ZERO, Unit::Requests).unwrap();
        let field = closed.limit_field(Outcome::Never, &status(0, Nanos::ZERO), Nanos::ZERO);
        assert_eq!(field, r#""closed";r=0"#);
    }

    #[test]
    fn names_that_a_string_cannot_hold_are_refused_with_the_reason() {
        let long = "x".repeat(129);
        let cases = [
            ("", "it must not be empty"),
            ("naïve", "'ï' is not a printable ASCII character"),
            ("a\r\nb", r"'\r' is not a printable ASCII character"),
            ("\u{7f}", r"'\u{7f}' is not a printable ASCII character"),
            (&long, "it is longer than 128 characters"),
        ];
        for (name, reason) in cases {
            let error = Policy::new(name, 1, Nanos::SECOND, Unit::Requests).unwrap_err();
            assert!(error.to_string().ends_with(reason), "{error}");
        }
        let error = Policy::new("é", 1, Nanos::SECOND, Unit::Requests).unwrap_err();
        assert_eq!(
            error.to_string(),
            r#"name: "é" is not valid: 'é' is not a printable ASCII character"#
        );
    }

    #[test]
    fn every_field_parses_back_to_what_went_in() {
        let names = ["demo", "a b", r#"quo"te"#, r"back\slash", "~!;=,", " "];
        let numbers = [0, 1, 5, MAX_INTEGER, MAX_INTEGER + 1, u64::MAX];
        let integer = |n: u64| n.min(MAX_INTEGER).to_string();
        for (name, n) in names.iter().flat_map(|s| numbers.map(|n| (*s, n))) {
            let span = Nanos::from_nanos(n);
            for unit in [Unit::Requests, Unit::Bytes, Unit::Tokens] {
                let policy = Policy::new(name, n, span, unit).unwrap();
                let (parsed_name, parameters) = parsed(policy.policy_field());
                assert_eq!(parsed_name, name);
                assert_eq!(parameters[0], ("q".to_owned(), integer(n)));
                assert_eq!(parameters.iter().any(|(k, _)| k == "w"), n > 0);
                assert!(parameters.iter().all(|(k, v)| k != "w" || v != "0"));

                for outcome in [Outcome::Allow, Outcome::Never, denied(span)] {
                    let field = policy.limit_field(outcome, &status(n, span), span);
                    let (parsed_name, parameters) = parsed(&field);
                    assert_eq!(parsed_name, name);
                    assert_eq!(parameters[0], ("r".to_owned(), integer(n)), "{field}");
                }
            }
        }
    }
}
