//! The error of a TLS configuration, with the file that causes it.
//!
//! Must not know: how the error was found.

use std::fmt;
use std::path::{Path, PathBuf};

/// A file that cannot be used for TLS.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidTls {
    /// The file.
    pub file: PathBuf,
    /// What is wrong with it.
    pub reason: String,
}

impl InvalidTls {
    pub(crate) fn new(file: &Path, reason: impl Into<String>) -> Self {
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
