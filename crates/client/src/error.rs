//! Why a request is not sent.
//!
//! Errors name no host, path or header field: those may hold secrets. Must not know: any HTTP library.

use std::fmt;

use tollgate_core::Nanos;

/// Why the pacer does not send a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PaceError {
    /// The wait would pass the request's deadline.
    DeadlineTooClose {
        /// The wait.
        wait: Nanos,
    },
    /// The wait is longer than this client waits.
    WaitTooLong {
        /// The wait.
        wait: Nanos,
        /// The longest wait.
        max: Nanos,
    },
    /// Too many requests wait already.
    QueueFull,
}

impl fmt::Display for PaceError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::DeadlineTooClose { wait } => write!(
                f,
                "the server's limit requires a wait of {} ms, which would pass the request's deadline",
                wait.as_millis_ceil()
            ),
            Self::WaitTooLong { wait, max } => write!(
                f,
                "the server's limit requires a wait of {} ms, more than the {} ms that this client waits",
                wait.as_millis_ceil(),
                max.as_millis_ceil()
            ),
            Self::QueueFull => f.write_str("too many requests wait for the server's limit"),
        }
    }
}

impl std::error::Error for PaceError {}

/// A request failed, or was not sent because of a limit.
#[derive(Debug)]
pub enum ClientError<E> {
    /// The request was not sent: its wait would have been too long.
    Pace(PaceError),
    /// The inner service failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pace(error) => error.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ClientError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pace(_) => None,
            Self::Inner(error) => Some(error),
        }
    }
}
