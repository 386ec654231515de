//! The error of every call: a limit denied it, or no decision was made.
//!
//! Must not know: how decisions are made; status codes, headers.

use std::fmt;
use std::time::Duration;

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Outcome, QuotaStatus};
use tollgate_store::{KeyTooLong, StoreError};

use crate::limit_name::LimitName;
use crate::rate_limit_fields::{RateLimitFields, StatedQuota};

/// A limit denied the call. No limit was charged.
///
/// ```
/// use tollgate::{Error, Limiter};
///
/// let limiter = Limiter::per_minute(1).name("per-user").build()?;
/// limiter.check("alice")?;
/// let Err(Error::Denied(denial)) = limiter.check("alice") else { panic!("one a minute") };
/// assert_eq!(denial.limit(), "per-user");
/// assert!(denial.retry_after() > Some(std::time::Duration::from_secs(59)));
///
/// let Err(Error::Denied(denial)) = limiter.check_n("alice", 2) else { panic!("never two") };
/// assert!(denial.is_never());
/// assert_eq!(denial.retry_after(), None);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Denial {
    name: LimitName,
    cost: u64,
    retry_time: RetryTime,
    status: QuotaStatus,
    /// What header fields state of the limit that denied.
    quota: Option<StatedQuota>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RetryTime {
    After(Nanos),
    /// When a permit is released.
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
            quota: None,
        }
    }

    /// The same denial by this limit.
    pub(crate) fn by_limit(mut self, limit: &Limit) -> Self {
        self.quota = Some(StatedQuota::new(limit, &self.status));
        self
    }

    /// The same denial with an unknown retry time.
    pub(crate) fn with_unknown_retry_time(mut self) -> Self {
        if let RetryTime::After(_) = self.retry_time {
            self.retry_time = RetryTime::Unknown;
        }
        self
    }

    /// The name of the limit that denied. If several denied, the one with the longest wait.
    #[must_use]
    pub fn limit(&self) -> &str {
        self.name.as_str()
    }

    /// The cost that was requested.
    #[must_use]
    pub const fn cost(&self) -> u64 {
        self.cost
    }

    /// Time after which every limit admits the same call, if no other call arrives. It is exact: one nanosecond earlier the
    /// call is still denied. `None` if waiting does not help ([`is_never`](Self::is_never)), or if the time is unknown because
    /// a [`ConcurrencyLimiter`](crate::ConcurrencyLimiter) without a lease waits for a release.
    #[must_use]
    pub fn retry_after(&self) -> Option<Duration> {
        match self.retry_time {
            RetryTime::After(time) => Some(time.into()),
            RetryTime::Unknown | RetryTime::Never => None,
        }
    }

    /// Whether the limit can never admit the same call, because the cost is above its burst. Split the call up.
    #[must_use]
    pub const fn is_never(&self) -> bool {
        matches!(self.retry_time, RetryTime::Never)
    }

    /// The largest cost that the limit ever admits at once.
    #[must_use]
    pub const fn max_cost(&self) -> u64 {
        self.status.limit
    }

    /// The units that the limit would have admitted, rounded down.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.status.remaining
    }

    /// Time until the full quota is available again. `None` if it is unknown.
    #[must_use]
    pub fn reset_after(&self) -> Option<Duration> {
        match self.retry_time {
            RetryTime::Unknown => None,
            RetryTime::After(_) | RetryTime::Never => Some(self.status.reset_after.into()),
        }
    }

    /// The numbers of the limit, for code that writes header fields or problem details. An unknown reset time is reported as
    /// zero.
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

    /// The header fields of the limit that denied.
    ///
    /// ```
    /// use tollgate::{Error, Limiter};
    ///
    /// let limiter = Limiter::per_minute(60).burst(1).name("per-key").build()?;
    /// limiter.check("alice")?;
    /// let Err(Error::Denied(denial)) = limiter.check("alice") else { panic!("one at once") };
    /// let fields = denial.rate_limit_fields();
    /// assert_eq!(fields.policy, r#""per-key";q=1;w=1"#);
    /// assert_eq!(fields.limit, r#""per-key";r=0;t=1"#);
    /// assert_eq!(fields.retry_after, Some(1));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn rate_limit_fields(&self) -> RateLimitFields {
        let (outcome, status) = (self.outcome(), self.status());
        let limit = self
            .quota
            .map(|quota| (self.limit(), quota, outcome, status));
        RateLimitFields::new(outcome, limit.into_iter())
    }

    /// The denial as an [`Outcome`], for code that writes header fields or problem details.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        match self.retry_time {
            RetryTime::After(retry_after) => Outcome::Deny { retry_after },
            // The time is unknown. Zero is rounded up to the shortest `Retry-After`.
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
                "limit {name:?} has no room for {cost} now: retry when a permit is released"
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

/// A call that was denied or not decided. Nothing was charged, unless
/// [`StoreError::may_have_charged`] says that it may have been.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// A limit denied the call. This is the only variant that a client should see as a rate limit.
    Denied(Denial),
    /// The key is longer than [`MAX_KEY_LEN`](crate::MAX_KEY_LEN). It is not truncated, because two callers would share a
    /// quota. The limit is not skipped, because a long key would bypass it.
    KeyTooLong(KeyTooLong),
    /// The store did not decide. In memory: the call is invalid (the same key twice in [`check_all`](crate::check_all), or
    /// limiters that do not share a table). Over Redis also: the server is unreachable, too slow, or returned an error.
    Store(StoreError),
    /// Too many callers are waiting.
    #[cfg(feature = "tokio")]
    TooManyWaiting {
        /// The largest number of callers that may wait.
        most: usize,
    },
}

impl Error {
    /// The denial, if the error is one.
    #[must_use]
    pub const fn denial(&self) -> Option<&Denial> {
        match self {
            Self::Denied(denial) => Some(denial),
            _ => None,
        }
    }

    /// Whether the store may have charged although the call failed. Do not repeat such a call for the same request. Always
    /// false in memory.
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
            Self::Denied(denial) => denial.fmt(f),
            Self::KeyTooLong(error) => error.fmt(f),
            Self::Store(error) => error.fmt(f),
            #[cfg(feature = "tokio")]
            Self::TooManyWaiting { most } => {
                write!(f, "too many callers are waiting: at most {most} may")
            }
        }
    }
}

impl std::error::Error for Error {}

impl From<Denial> for Error {
    #[inline]
    fn from(denial: Denial) -> Self {
        Self::Denied(denial)
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
