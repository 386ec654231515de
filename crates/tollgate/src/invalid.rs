//! The error of every builder: which limit, which field, which value, and what is wrong with it.
//!
//! Must not know: how limiters are built.

use std::fmt;

use tollgate_core::InvalidQuota;
use tollgate_store::InvalidSize;

use crate::limit_name::LimitName;
use crate::limits::MAX_LIMITS;

/// A limiter that cannot be built, or limits that cannot replace others.
///
/// ```
/// use tollgate::Limiter;
///
/// let error = Limiter::per_day(1).burst(60_000).build().unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "limit \"rate\": burst: 60000 is not valid: it would take longer than 2^62 ns (146 years) to refill; \
///      the nearest valid value is 53375",
/// );
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidLimiter {
    /// A quota that cannot be enforced exactly.
    Quota {
        /// Which limit.
        name: LimitName,
        /// The field, its value, and the nearest valid value.
        cause: InvalidQuota,
    },
    /// The table cannot be created for this number of keys.
    Size(InvalidSize),
    /// `keys` was set on a limiter that uses the table of another limiter.
    SizeOfSharedTable {
        /// The value of `keys`.
        keys: usize,
    },
    /// No limit was added. Such a limiter would admit everything.
    NoLimits,
    /// More than [`MAX_LIMITS`].
    TooManyLimits {
        /// The number of limits.
        count: usize,
    },
    /// Two limits of one limiter have the same name, so they would share state.
    SameName {
        /// The shared name.
        name: LimitName,
    },
    /// The table has allocated all 65,535 limit ids. It never reuses an id.
    OutOfNumbers,
    /// A setting that only a limiter in memory has.
    #[cfg(feature = "redis")]
    OnlyInMemory {
        /// The builder's method.
        choice: &'static str,
    },
    /// A limit id that is not valid over Redis.
    #[cfg(feature = "redis")]
    Id {
        /// Which limit.
        name: LimitName,
        /// The id.
        id: u16,
        /// Why it is not valid.
        problem: &'static str,
    },
    /// Two limits over one connection have the same id, so they would share state.
    #[cfg(feature = "redis")]
    SameId {
        /// Which limit.
        name: LimitName,
        /// The limit that already has this id.
        other: LimitName,
        /// The id.
        id: u16,
    },
    /// A concurrency limiter over Redis without a lease. A process that crashes would hold its permits forever.
    #[cfg(feature = "redis")]
    NoLease {
        /// The name of the concurrency limiter.
        name: LimitName,
    },
}

impl fmt::Display for InvalidLimiter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Quota { name, cause } => write!(f, "limit {name:?}: {cause}"),
            Self::Size(cause) => write!(f, "{cause}"),
            Self::SizeOfSharedTable { keys } => write!(
                f,
                "keys: {keys} is not valid: a limiter that shares a table uses the size of that table"
            ),
            Self::NoLimits => f.write_str("limits: 0 is not valid: there must be at least one"),
            Self::TooManyLimits { count } => write!(
                f,
                "limits: {count} is not valid: one limiter has at most {MAX_LIMITS}"
            ),
            Self::SameName { name } => write!(
                f,
                "limit: {name:?} is not valid: another limit has this name, and they would share state"
            ),
            Self::OutOfNumbers => f.write_str(
                "limits: the table has allocated all 65535 limit ids: build a new limiter",
            ),
            #[cfg(feature = "redis")]
            Self::OnlyInMemory { choice } => write!(
                f,
                "{choice}: not valid over Redis: only a limiter in memory has this setting"
            ),
            #[cfg(feature = "redis")]
            Self::Id { name, id, problem } => {
                write!(f, "limit {name:?}: id: {id} is not valid: {problem}")
            }
            #[cfg(feature = "redis")]
            Self::SameId { name, other, id } => write!(
                f,
                "limit {name:?}: id: {id} is not valid: limit {other:?} over this connection has the same id, and they \
                 would share state: choose another name or id"
            ),
            #[cfg(feature = "redis")]
            Self::NoLease { name } => write!(
                f,
                "limit {name:?}: lease: none is not valid over Redis: a process that crashes would hold its permits forever"
            ),
        }
    }
}

impl std::error::Error for InvalidLimiter {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Quota { cause, .. } => Some(cause),
            Self::Size(cause) => Some(cause),
            _ => None,
        }
    }
}

impl From<InvalidSize> for InvalidLimiter {
    fn from(cause: InvalidSize) -> Self {
        Self::Size(cause)
    }
}
