//! Why a table cannot be made or a key not be looked up.

use std::fmt;

use crate::buckets::MAX_KEY_LEN;

/// A key longer than [`MAX_KEY_LEN`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyTooLong {
    /// Its length in bytes.
    pub len: usize,
}

impl fmt::Display for KeyTooLong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { len } = self;
        write!(
            f,
            "key: {len} bytes are too long: the longest key has {MAX_KEY_LEN}"
        )
    }
}

impl std::error::Error for KeyTooLong {}

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
