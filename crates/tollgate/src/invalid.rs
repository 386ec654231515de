//! Why a limiter cannot be built: which limit, which field, which value, what is wrong.
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
    /// A limit's numbers cannot be honoured exactly.
    Quota {
        /// Which limit.
        name: LimitName,
        /// Which number, and the nearest that works.
        cause: InvalidQuota,
    },
    /// The table cannot be made for so many keys.
    Size(InvalidSize),
    /// A limiter beside another has no table of its own whose size could be chosen.
    SizeOfSharedTable {
        /// The number of keys that was given.
        keys: usize,
    },
    /// A limiter without limits would admit everything.
    NoLimits,
    /// More than [`MAX_LIMITS`].
    TooManyLimits {
        /// How many.
        count: usize,
    },
    /// Two limits have one name, and so would share state.
    SameName {
        /// The name.
        name: LimitName,
    },
    /// The table has seen 65,535 different limits. Their numbers are not used again while it lives.
    OutOfNumbers,
    /// A choice that only a table in memory has.
    #[cfg(feature = "redis")]
    OnlyInMemory {
        /// The builder's method.
        choice: &'static str,
    },
    /// A number that a limit cannot have over Redis.
    #[cfg(feature = "redis")]
    Id {
        /// Which limit.
        name: LimitName,
        /// The number.
        id: u16,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// Two limits over one connection have one number, and so would share state.
    #[cfg(feature = "redis")]
    SameId {
        /// Which limit.
        name: LimitName,
        /// Which limit has it already.
        other: LimitName,
        /// The number.
        id: u16,
    },
    /// A gate over Redis without leases: a process that ends without a word would keep its places for ever.
    #[cfg(feature = "redis")]
    NoLease {
        /// Which gate.
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
                "keys: {keys} is not valid: a limiter beside another uses a table that has its size"
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
                "limits: the table has seen 65535 of them, and their numbers are not used again: make a new limiter",
            ),
            #[cfg(feature = "redis")]
            Self::OnlyInMemory { choice } => write!(
                f,
                "{choice}: not valid over Redis: only a table in memory has it"
            ),
            #[cfg(feature = "redis")]
            Self::Id { name, id, problem } => {
                write!(f, "limit {name:?}: id: {id} is not valid: {problem}")
            }
            #[cfg(feature = "redis")]
            Self::SameId { name, other, id } => write!(
                f,
                "limit {name:?}: id: {id} is not valid: limit {other:?} has it over this connection, and they would \
                 share state: choose another name or id"
            ),
            #[cfg(feature = "redis")]
            Self::NoLease { name } => write!(
                f,
                "limit {name:?}: lease: none is not valid over Redis: a process that dies would keep its places for ever"
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
