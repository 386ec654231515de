//! Why TLS cannot be had, with the file whose fault it is.
//!
//! Must not know: how it was found out.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file that TLS cannot be spoken with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTls {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidTls {
    pub(super) fn new(file: &Path, reason: impl Into<String>) -> Self {
        Self {
            file: file.to_owned(),
            reason: reason.into(),
        }
    }
}

impl fmt::Display for InvalidTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.file.display(), self.reason)
    }
}

impl std::error::Error for InvalidTls {}
