//! Making problems in one line.
//!
//! Must not know: what is wrong.

use crate::source::{Diagnostic, SourceLocation};

/// What is wrong, where, and what would be right.
pub(super) fn problem(place: SourceLocation, message: &str, help: &str) -> Diagnostic {
    Diagnostic {
        location: place,
        message: message.into(),
        help: Some(help.into()),
    }
}
