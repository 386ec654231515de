//! Making problems in one line.
//!
//! Must not know: what is wrong.

use crate::source::{Place, Problem};

/// What is wrong, where, and what would be right.
pub(super) fn problem(place: Place, message: &str, help: &str) -> Problem {
    Problem {
        place,
        message: message.into(),
        help: Some(help.into()),
    }
}
