//! Why a table cannot be made.

use std::fmt;

/// A number of keys that no table can be made for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSize {
    /// The number that was given.
    pub keys: usize,
    pub(crate) reason: &'static str,
}

impl fmt::Display for InvalidSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys: {} is not valid: {}", self.keys, self.reason)
    }
}

impl std::error::Error for InvalidSize {}
