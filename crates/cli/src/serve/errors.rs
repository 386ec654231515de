//! Errors at startup, with messages that say what to change.
//!
//! Must not know: how the errors were detected.

use std::error::Error;
use std::fmt;
use std::io;

use tollgate_policy::source::Diagnostics;
use tollgate_server::listen::ListenAddress;

/// A policy that cannot be loaded.
#[derive(Debug)]
pub(super) struct InvalidPolicy(pub(super) Vec<Diagnostics>);

impl fmt::Display for InvalidPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(files) = self;
        let count: usize = files.iter().map(|file| file.list.len() + file.more).sum();
        let are = if count == 1 {
            "is 1 problem"
        } else {
            "are problems"
        };
        write!(f, "there {are} with the policy\n\n")?;
        files.iter().try_for_each(|problems| problems.fmt(f))
    }
}

impl Error for InvalidPolicy {}

/// An address that cannot be bound.
#[derive(Debug)]
pub(super) struct BindError {
    pub(super) address: ListenAddress,
    pub(super) option: &'static str,
    pub(super) error: io::Error,
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            option,
            error,
        } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: another program uses it; choose another address with {option}"
            ),
            _ => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl Error for BindError {}
