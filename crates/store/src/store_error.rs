//! Why a store did not answer, as data: whose fault it is, whether to try again, whether something may be charged.
//!
//! Must not know: transports, servers, what a caller does about it.

use std::borrow::Cow;
use std::fmt;

/// A store did not decide.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreError {
    kind: StoreErrorKind,
    /// What happened, for people: lowercase, no full stop, no keys or passwords.
    detail: Cow<'static, str>,
}

/// What kind of failure it is. Everything a program needs to react follows from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StoreErrorKind {
    /// The call makes no sense: too many checks, the same key twice, an operation that the algorithm does not know.
    BadRequest,
    /// The store could not be reached; nothing was sent.
    Unreachable,
    /// Too many calls are under way; this one was not sent.
    Busy,
    /// The answer did not come in time. The store may have decided and charged.
    TimedOut,
    /// The connection ended before the answer. The store may have decided and charged.
    ConnectionLost,
    /// The store refused: loading, read only, out of memory, not permitted. Nothing was charged.
    Refused,
    /// The store answered what makes no sense. It may have charged.
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

    /// What kind of failure it is.
    #[must_use]
    pub const fn kind(&self) -> StoreErrorKind {
        self.kind
    }

    /// Whether the caller is to blame, not the store.
    #[must_use]
    pub const fn is_callers_fault(&self) -> bool {
        matches!(self.kind, StoreErrorKind::BadRequest)
    }

    /// Whether the checks may have been charged although nobody heard the answer. Such a call must not be repeated
    /// for the same request.
    #[must_use]
    pub const fn may_have_charged(&self) -> bool {
        matches!(
            self.kind,
            StoreErrorKind::TimedOut
                | StoreErrorKind::ConnectionLost
                | StoreErrorKind::InvalidReply
        )
    }

    /// Whether the same call may be made again without charging twice.
    #[must_use]
    pub const fn is_safe_to_retry(&self) -> bool {
        !self.may_have_charged() && !self.is_callers_fault()
    }
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            StoreErrorKind::BadRequest => "the request makes no sense",
            StoreErrorKind::Unreachable => "the store cannot be reached",
            StoreErrorKind::Busy => "too many calls to the store are under way",
            StoreErrorKind::TimedOut => "the store did not answer in time; it may have charged",
            StoreErrorKind::ConnectionLost => {
                "the connection to the store was lost; it may have charged"
            }
            StoreErrorKind::Refused => "the store refused",
            StoreErrorKind::InvalidReply => {
                "the store's answer makes no sense; it may have charged"
            }
        })?;
        write!(f, ": {}", self.detail)
    }
}

impl std::error::Error for StoreError {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_have_charged_is_never_safe_to_repeat() {
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
