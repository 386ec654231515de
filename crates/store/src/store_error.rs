//! Store errors as data: whose fault it is, whether to retry, whether something may have been charged.
//!
//! Must not know: transports, servers, how a caller reacts.

use std::borrow::Cow;
use std::fmt;

/// A store could not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    /// The cause, for people: lowercase, no full stop, no keys or passwords.
    detail: Cow<'static, str>,
}

/// The kind of a failure. A program can react by the kind alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The call is invalid: too many checks, a duplicate key, an operation that the algorithm does not support.
    BadRequest,
    /// The store could not be reached; nothing was sent.
    Unreachable,
    /// Too many calls are in flight; this one was not sent.
    Busy,
    /// The reply did not arrive in time. The store may have decided and charged.
    TimedOut,
    /// The connection ended before the reply. The store may have decided and charged.
    ConnectionLost,
    /// The store refused: loading, read only, out of memory, not permitted. Nothing was charged.
    Refused,
    /// The store sent an invalid reply. It may have charged.
    InvalidReply,
}

impl StoreError {
    /// A failure of this kind.
    pub fn new(kind: StoreErrorKind, detail: impl Into<Cow<'static, str>>) -> Self {
        Self {
            kind,
            detail: detail.into(),
        }
    }

    /// The kind of failure.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the caller caused the failure.
    #[must_use]
    pub const fn is_callers_fault(&self) -> bool {
        matches!(self.kind, StoreErrorKind::BadRequest)
    }

    /// Whether the checks may have been charged although no reply arrived. Do not repeat such a call for the same
    /// request.
    #[must_use]
    pub const fn may_have_charged(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::TimedOut
                | StoreErrorKind::ConnectionLost
                | StoreErrorKind::InvalidReply
        )
    }

    /// Whether repeating the call cannot charge twice.
    #[must_use]
    pub const fn is_safe_to_retry(&self) -> bool {
        !self.may_have_charged() && !self.is_callers_fault()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::BadRequest => "invalid request",
            StoreErrorKind::Unreachable => "the store cannot be reached",
            StoreErrorKind::Busy => "too many calls to the store are in flight",
            StoreErrorKind::TimedOut => "the store did not reply in time; it may have charged",
            StoreErrorKind::ConnectionLost => {
                "the connection to the store was lost; it may have charged"
            }
            StoreErrorKind::Refused => "the store refused",
            StoreErrorKind::InvalidReply => "the store sent an invalid reply; it may have charged",
        })?;
        write!(f, ": {}", self.detail)
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_may_have_charged_is_never_safe_to_repeat() {
        let kinds = [
            (StoreErrorKind::BadRequest, true, false, false),
            (StoreErrorKind::Unreachable, false, false, true),
            (StoreErrorKind::Busy, false, false, true),
            (StoreErrorKind::TimedOut, false, true, false),
            (StoreErrorKind::ConnectionLost, false, true, false),
            (StoreErrorKind::Refused, false, false, true),
            (StoreErrorKind::InvalidReply, false, true, false),
        ];
        for (kind, callers, charged, retry) in kinds {
            let error = StoreError::new(kind, "x");
            assert_eq!(
                (
                    error.is_callers_fault(),
                    error.may_have_charged(),
                    error.is_safe_to_retry()
                ),
                (callers, charged, retry),
                "{kind:?}"
            );
        }
    }
}
