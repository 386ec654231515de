//! The operations on a limit, as data: the one definition that core, every store and every caller use.
//!
//! Must not know: how any operation is decided, where state is kept.

use core::fmt;

use crate::concurrency::LeaseId;
use crate::outcome::Receipt;
use crate::reservation::ReservationId;
use crate::time::Nanos;

/// One operation on one key of one limit.
///
/// [`Limit::decide`](super::Limit::decide) carries out all operations except those on reservations. These need a ledger of ids beside the
/// state, which only stores have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Op {
    /// Spend this much, or nothing. A cost of zero is a peek.
    Spend(u64),
    /// Spend as many of these units as are left.
    SpendUpTo(u64),
    /// Report whether this cost would be admitted; change nothing.
    Peek(u64),
    /// Spend this much even if it is not left, down to the overdraft. Never denies.
    ChargeAlways(u64),
    /// Spend this much and record it under an id until it is settled, cancelled or expires after `hold`. Repeating it under the same id
    /// replies as before and spends nothing.
    Reserve {
        /// The reservation.
        id: ReservationId,
        /// The estimate.
        cost: u64,
        /// How long it may be settled downwards or cancelled.
        hold: Nanos,
    },
    /// Correct a reservation to its real cost, once.
    SettleReserved {
        /// The reservation.
        id: ReservationId,
        /// The real cost.
        actual: u64,
    },
    /// Cancel a reservation, once.
    CancelReserved(ReservationId),
    /// Correct a charge by its receipt; zero refunds it.
    Settle {
        /// The charge.
        receipt: Receipt,
        /// The new cost.
        actual: u64,
    },
    /// Give back units without a receipt.
    Credit(u64),
    /// Acquire places of a concurrency limit under an id.
    Acquire {
        /// The id of the lease.
        id: LeaseId,
        /// How many.
        weight: u64,
    },
    /// Extend a lease.
    Renew(LeaseId),
    /// End a lease.
    Release(LeaseId),
}

/// Why an operation cannot be carried out. It is not a denial: nothing was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpError {
    /// The algorithm does not have this operation. Leases belong to concurrency limits, charges to all other limits, and reservations to
    /// stores.
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
