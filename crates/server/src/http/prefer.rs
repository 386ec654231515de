//! `Prefer: return=minimal` (RFC 7240): whether a client wants the body of a response.
//!
//! Must not know: endpoints, what a body has.

use std::fmt;
use std::str::FromStr;

use hyper::HeaderMap;
use hyper::header::{HeaderName, HeaderValue};

/// The field of a request, and the field of the response that says which preference was applied.
pub(crate) const PREFER: HeaderName = HeaderName::from_static("prefer");
pub(crate) const PREFERENCE_APPLIED: &str = "preference-applied";

/// How much a response to a check says in its body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum BodyForm {
    /// The whole decision, as JSON.
    #[default]
    Full,
    /// Nothing: status and header fields say it.
    Minimal,
}

impl BodyForm {
    /// The value of `Preference-Applied`.
    pub(crate) const fn preference(self) -> &'static str {
        match self {
            Self::Full => "return=representation",
            Self::Minimal => "return=minimal",
        }
    }

    /// The form that the first `return` preference of these `Prefer` fields asks for. RFC 7240 ignores repetitions, and
    /// preferences that the server does not know.
    pub(crate) fn from_fields<'a>(values: impl IntoIterator<Item = &'a [u8]>) -> Option<Self> {
        let mut preferences = values
            .into_iter()
            .flat_map(|value| value.split(|byte| *byte == b','));
        preferences.find_map(|preference| {
            let parts = preference.split(|byte| *byte == b';').next()?;
            let equals = parts.iter().position(|byte| *byte == b'=')?;
            let (name, value) = parts.split_at_checked(equals)?;
            if !name.trim_ascii().eq_ignore_ascii_case(b"return") {
                return None;
            }
            let value = value.get(1..)?.trim_ascii();
            let quoted = value.strip_prefix(b"\"");
            let unquoted = quoted.and_then(|value| value.strip_suffix(b"\""));
            // The first one counts, also if its value is unknown.
            Some(match unquoted.unwrap_or(value) {
                value if value.eq_ignore_ascii_case(b"minimal") => Some(Self::Minimal),
                value if value.eq_ignore_ascii_case(b"representation") => Some(Self::Full),
                _ => None,
            })
        })?
    }

    /// The same for the fields of a request.
    pub(crate) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        Self::from_fields(headers.get_all(PREFER).iter().map(HeaderValue::as_bytes))
    }
}

impl FromStr for BodyForm {
    type Err = InvalidBodyForm;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "full" => Ok(Self::Full),
            "minimal" => Ok(Self::Minimal),
            _ => Err(InvalidBodyForm),
        }
    }
}

impl fmt::Display for BodyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full => "full",
            Self::Minimal => "minimal",
        })
    }
}

/// The name of a [`BodyForm`] is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidBodyForm;

impl fmt::Display for InvalidBodyForm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it must be full or minimal")
    }
}

impl std::error::Error for InvalidBodyForm {}

#[cfg(test)]
mod tests {
    use super::*;

    fn preferred(values: &[&str]) -> Option<BodyForm> {
        BodyForm::from_fields(values.iter().map(|value| value.as_bytes()))
    }

    #[test]
    fn the_first_return_preference_counts() {
        for values in [
            &["return=minimal"][..],
            &["respond-async, return=minimal"],
            &["wait=10; x=y", "Return = \"Minimal\"; foo=bar"],
            &["return=minimal, return=representation"],
        ] {
            assert_eq!(preferred(values), Some(BodyForm::Minimal), "{values:?}");
        }
        let full = &["return=representation", "return=minimal"];
        assert_eq!(preferred(full), Some(BodyForm::Full));
    }

    #[test]
    fn other_preferences_are_ignored() {
        for values in [
            &[][..],
            &[""],
            &["minimal"],
            &["return"],
            &["return=little"],
            &["return=little, return=minimal"],
            &["no-return=minimal"],
            &["wait=1; return=minimal"],
            &["return=\"minimal"],
            &[",;=,"],
        ] {
            assert_eq!(preferred(values), None, "{values:?}");
        }
    }

    #[test]
    fn forms_are_read_as_they_are_written() {
        for form in [BodyForm::Full, BodyForm::Minimal] {
            assert_eq!(form.to_string().parse(), Ok(form));
        }
        assert_eq!("brief".parse::<BodyForm>(), Err(InvalidBodyForm));
    }
}
