//! Why a call did not get what it asked for: a limit said no, or nothing was decided at all.
//!
//! Must not know: how decisions are made; status codes, headers.

use std::fmt;
use std::time::Duration;

use tollgate_core::{Nanos, Outcome, QuotaStatus};
use tollgate_store::{KeyTooLong, StoreError};

use crate::limit_name::LimitName;

/// A limit said no. Nothing was charged, on this limit or any other.
///
/// ```
/// use tollgate::{Error, Limiter};
///
/// let limiter = Limiter::per_minute(1).name("per-user").build()?;
/// limiter.check("alice")?;
/// let Err(Error::Denied(denied)) = limiter.check("alice") else { panic!("one a minute") };
/// assert_eq!(denied.limit(), "per-user");
/// assert!(denied.retry_after() > Some(std::time::Duration::from_secs(59)));
///
/// let Err(Error::Denied(denied)) = limiter.check_n("alice", 2) else { panic!("never two") };
/// assert!(denied.is_never());
/// assert_eq!(denied.retry_after(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    name: LimitName,
    cost: u64,
    retry_time: RetryTime,
    status: QuotaStatus,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryTime {
    After(Nanos),
    /// When somebody leaves.
    Unknown,
    Never,
}

impl Denial {
    pub(crate) fn new(name: LimitName, cost: u64, outcome: Outcome, status: QuotaStatus) -> Self {
        let when = match outcome {
            Outcome::Never => RetryTime::Never,
            Outcome::Deny { retry_after } | Outcome::Wait(retry_after) => {
                RetryTime::After(retry_after)
            }
            Outcome::Allow => RetryTime::After(Nanos::ZERO),
        };
        Self {
            name,
            cost,
            retry_time: when,
            status,
        }
    }

    /// The same denial, of which nobody can say when it ends.
    pub(crate) fn with_unknown_retry_time(mut self) -> Self {
        if let RetryTime::After(_) = self.retry_time {
            self.retry_time = RetryTime::Unknown;
        }
        self
    }

    /// Which limit it was. Where several denied, the one to wait for longest.
    #[must_use]
    pub fn limit(&self) -> &str {
        self.name.as_str()
    }

    /// What was asked for.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// After exactly this long the same call is admitted by every limit if nothing else arrives, and a nanosecond
    /// earlier it is not. `None` if waiting does not help ([`is_never`](Self::is_never)), or if nobody can say: a
    /// [`Gate`](crate::Gate) without leases opens when somebody leaves.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry_time {
            RetryTime::After(time) => Some(time.into()),
            RetryTime::Unknown | RetryTime::Never => None,
        }
    }

    /// Whether the same call can never be admitted: it asks for more than the limit ever admits at once. Split it up.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.retry_time, RetryTime::Never)
    }

    /// The most that the limit admits at once.
    #[must_use]
    pub const fn max_cost(&self) -> u64 {
        self.status.limit
    }

    /// What the limit would have admitted, rounded down.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.status.remaining
    }

    /// Time until the limit is as if this key had never used it. `None` where nobody can say.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        match self.retry_time {
            RetryTime::Unknown => None,
            RetryTime::After(_) | RetryTime::Never => Some(self.status.reset_after.into()),
        }
    }

    /// Where the limit stands, for those who word it: headers, problem details. Where nobody can say when it resets, that
    /// is said to be now.
    #[must_use]
    pub const fn status(&self) -> QuotaStatus {
        match self.retry_time {
            RetryTime::Unknown => QuotaStatus {
                reset_after: Nanos::ZERO,
                ..self.status
            },
            RetryTime::After(_) | RetryTime::Never => self.status,
        }
    }

    /// The denial in the terms of `tollgate-core`, for those who word it: headers, problem details.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.retry_time {
            RetryTime::After(retry_after) => Outcome::Deny { retry_after },
            // No time can be named: the shortest there is, so that words rounded up say "a moment".
            RetryTime::Unknown => Outcome::Deny {
                retry_after: Nanos::ZERO,
            },
            RetryTime::Never => Outcome::Never,
        }
    }
}

impl fmt::Display for Denial {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, cost, .. } = self;
        match self.retry_time {
            RetryTime::After(time) => write!(
                f,
                "limit {name:?} has no room for {cost} now: retry after {:?}",
                Duration::from(time)
            ),
            RetryTime::Unknown => write!(
                f,
                "limit {name:?} has no room for {cost} now: retry when somebody has left"
            ),
            RetryTime::Never => write!(
                f,
                "limit {name:?} never admits {cost} at once: the most is {}",
                self.status.limit
            ),
        }
    }
}

impl std::error::Error for Denial {}

/// A call that did not get what it asked for. In every case nothing was charged, unless a
/// [store error](StoreError::may_have_charged) says that it may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A limit said no: the only answer to tell a client about.
    Denied(Denial),
    /// The key is longer than [`MAX_KEY_LEN`](crate::MAX_KEY_LEN). It is not cut, which would let two callers share a
    /// quota, and the limit is not skipped, which would let anybody out of it.
    KeyTooLong(KeyTooLong),
    /// The store did not decide: in memory, because the call makes no sense (the same key twice in
    /// [`check_all`](crate::check_all), limiters that share no table); over Redis also because
    /// the server is out of reach, late or unwilling.
    Store(StoreError),
    /// Too many are waiting already.
    #[cfg(feature = "tokio")]
    TooManyWaiting {
        /// The most that may wait.
        most: usize,
    },
}

impl Error {
    /// The denial, if it is one.
    #[must_use]
    pub const fn denied(&self) -> Option<&Denial> {
        match self {
            Self::Denied(denied) => Some(denied),
            _ => None,
        }
    }

    /// Whether something may have been charged although this call did not hear of it. Such a call must not be repeated
    /// for the same request. Never so in memory.
    #[must_use]
    pub const fn may_have_charged(&self) -> bool {
        match self {
            Self::Store(error) => error.may_have_charged(),
            _ => false,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Denied(denied) => denied.fmt(f),
            Self::KeyTooLong(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            #[cfg(feature = "tokio")]
            Self::TooManyWaiting { most } => {
                write!(f, "{most} callers are waiting already, the most that may")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Denial> for Error {
    #[inline]
    fn from(denied: Denial) -> Self {
        Self::Denied(denied)
    }
}

impl From<KeyTooLong> for Error {
    #[inline]
    fn from(error: KeyTooLong) -> Self {
        Self::KeyTooLong(error)
    }
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}
