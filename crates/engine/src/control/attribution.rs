//! Which operator makes a change, and why.
//!
//! Must not know: what is changed, who may change it.

use super::operator_error::OperatorError;

const MAX_WHO_BYTES: usize = 128;
const MAX_WHY_BYTES: usize = 512;

/// Which operator makes a change, and why. Both are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attribution<'a> {
    /// A name, at most 128 bytes.
    pub who: &'a str,
    /// A reason, at most 512 bytes.
    pub why: &'a str,
}

/// An owned [`Attribution`].
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub(super) struct OwnedAttribution {
    pub(super) who: Box<str>,
    pub(super) why: Box<str>,
}

impl OwnedAttribution {
    pub(super) fn from_borrowed(attribution: Attribution<'_>) -> Self {
        Self {
            who: attribution.who.into(),
            why: attribution.why.into(),
        }
    }
}

/// Checks that the operator and the reason are given.
pub(super) fn check_attribution(attribution: Attribution<'_>) -> Result<(), OperatorError> {
    for (field, text, max) in [
        ("who", attribution.who, MAX_WHO_BYTES),
        ("why", attribution.why, MAX_WHY_BYTES),
    ] {
        // One event is one log line, so line breaks are not allowed.
        if text.trim().is_empty() || text.len() > max || text.chars().any(char::is_control) {
            return Err(OperatorError::MissingAttribution { field, max });
        }
    }
    Ok(())
}
