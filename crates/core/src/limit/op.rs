//! What may be asked of a limit, as data: the one definition that core, every store and every caller use.
//!
//! Must not know: how any operation is decided, where state is kept.

use core::fmt;

use crate::concurrency::LeaseId;
use crate::outcome::Receipt;
use crate::reservation::ReservationId;
use crate::time::Nanos;

/// One operation on one key of one limit.
///
/// [`Limit::decide`](super::Limit::decide) carries out all but the operations on reservations: those need a ledger of
/// ids beside the state, which only stores keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Spend this much, or nothing. A cost of zero is a peek.
    Spend(u64),
    /// Spend as much of this as there is.
    SpendUpTo(u64),
    /// Say whether this much would be admitted; change nothing.
    Peek(u64),
    /// Spend this much whether or not it is there, down to the overdraft. Never denies.
    ChargeAlways(u64),
    /// Spend this much and remember it under an id until it is settled, cancelled or expires after `hold`.
    /// Repeating it under the same id answers as before and spends nothing.
    Reserve {
        /// The reservation.
        id: ReservationId,
        /// The estimate.
        cost: u64,
        /// How long it may be settled downwards or cancelled.
        hold: Nanos,
    },
    /// Correct a reservation to what it turned out to cost, once.
    SettleReserved {
        /// The reservation.
        id: ReservationId,
        /// The real cost.
        actual: u64,
    },
    /// Give a reservation back, once.
    CancelReserved(ReservationId),
    /// Correct a charge that the caller has the receipt of; zero gives it back.
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
pub enum OpError {
    /// The algorithm does not know this operation: leases belong to concurrency limits, charges to all others, and
    /// reservations to stores.
    Unsupported,
    /// The lease to renew is not held: it was released, or it has expired.
    NotHeld,
}

impl fmt::Display for OpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unsupported => "the limit's algorithm does not support this operation",
            Self::NotHeld => "the lease is not held: it was released or has expired",
        })
    }
}

impl core::error::Error for OpError {}
