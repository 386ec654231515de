//! What may be asked of a limit, as data.

use core::fmt;

use crate::concurrency::LeaseId;
use crate::outcome::Receipt;

/// One operation on one limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Spend this much, or nothing. A cost of zero is a peek.
    Spend(u64),
    /// Spend as much of this as there is.
    SpendUpTo(u64),
    /// Spend this much whether or not it is there, down to the overdraft.
    ChargeAlways(u64),
    /// Correct an earlier charge to what it turned out to cost; zero gives it back.
    Settle {
        /// The charge.
        receipt: Receipt,
        /// What it is to become.
        actual: u64,
    },
    /// Give back units that nobody can show a receipt for.
    Credit(u64),
    /// Hold places of a concurrency limit under an id.
    Acquire {
        /// Who holds them.
        id: LeaseId,
        /// How many.
        weight: u64,
    },
    /// Extend a lease.
    Renew(LeaseId),
    /// End a lease.
    Release(LeaseId),
}

/// Why an operation cannot be carried out at all. It is not a denial: nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Refused {
    /// The algorithm does not know this operation: leases belong to concurrency limits, charges to all others.
    Unsupported,
    /// The lease to renew is not held: it was released, or it has expired.
    NotHeld,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the limit's algorithm does not support this operation",
            Self::NotHeld => "the lease is not held: it was released or has expired",
        })
    }
}

impl core::error::Error for Refused {}
