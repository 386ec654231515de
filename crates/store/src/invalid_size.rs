//! The error for an invalid table size.

use std::fmt;

/// A number of keys for which no table can be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidSize {
    /// The requested number of keys.
    pub keys: usize,
    pub(crate) reason: &'static str,
}

impl fmt::Display for InvalidSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "keys: {} is not valid: {}", self.keys, self.reason)
    }
}

impl std::error::Error for InvalidSize {}
