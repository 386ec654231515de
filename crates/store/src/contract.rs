//! The store contract: a batch of checks, decided together, all or nothing.
//!
//! The memory store decides synchronously ([`Store`]); a remote store decides asynchronously, with the same checks and
//! replies. Must not know: where state is kept, what keys or limits mean.

use std::num::NonZeroU16;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp};

use crate::key::StoreKey;
use crate::store_error::StoreError;

pub use tollgate_core::limit::Op;

/// The largest number of checks in one batch. Stores and drivers have smaller arrays for smaller batches, so only a
/// large batch pays for it.
pub const MAX_CHECKS: usize = 128;

/// Identity of a limit, stable for as long as its state lives. Two limits never share an id. The id of a removed limit
/// is not reused while its state may still exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(pub NonZeroU16);

/// A limit with its identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifiedLimit {
    /// The limit's id. Tiers of one limit have the same id and share state.
    pub id: LimitId,
    /// The compiled quota.
    pub limit: Limit,
}

/// One check of a batch: one key under one limit.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCheck<'a> {
    /// The key whose quota is checked.
    pub key: StoreKey<'a>,
    /// The limit to check.
    pub limit: &'a IdentifiedLimit,
    /// The operation.
    pub op: Op,
}

/// The reply for one check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// The outcome of this limit alone.
    pub outcome: Outcome,
    /// The limit's status after the decision.
    pub status: QuotaStatus,
    /// The charge. Its cost is zero unless the whole batch was admitted.
    pub receipt: Receipt,
    /// Further information about how the reply came about.
    pub note: ReplyNote,
}

impl StoreReply {
    /// A placeholder that `decide` overwrites.
    pub const EMPTY: Self = Self {
        outcome: Outcome::Never,
        status: QuotaStatus {
            limit: 0,
            remaining: 0,
            reset_after: Nanos::ZERO,
        },
        receipt: Receipt {
            cost: 0,
            at: Timestamp::EPOCH,
            mark: 0,
        },
        note: ReplyNote::Plain,
    };
}

/// Information about a reply beyond its outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReplyNote {
    /// No further information.
    #[default]
    Plain,
    /// The table was full of denied keys, so the overflow sketch decided for a new key. It may deny too much, never too
    /// little. Its charges cannot be refunded.
    Overflow,
    /// The reservation exists already; nothing was charged again.
    AlreadyReserved,
    /// The reservation was settled or cancelled before; nothing changed.
    AlreadyClosed,
    /// The reservation has expired and stays charged; nothing changed.
    ReservationExpired,
    /// No such reservation exists; nothing changed.
    ReservationUnknown,
    /// Too many reservations exist under this key; nothing was charged.
    ReservationsFull,
    /// The lease is not held: it was released or has expired; nothing changed.
    LeaseNotHeld,
    /// The shared store did not reply, and the limit's fallback quota on this node decided. Only this node knows the
    /// charge.
    FallbackQuota,
    /// The shared store did not reply, and the limit fails open. Its status is unknown.
    FailOpen,
    /// The limit was not checked because another limit had denied already. Its status is unknown.
    NotChecked,
}

/// A store that decides synchronously.
///
/// All checks of a batch are decided at one instant. If all of them admit, all are charged; otherwise none is.
/// `answers` receives one reply per check, in order, and must be as long as `checks`. A batch may contain each key of a
/// limit only once.
pub trait Store: Send + Sync {
    /// Decides a batch.
    ///
    /// # Errors
    /// The batch is invalid, or the store cannot decide. The error tells whose fault it is, whether the call may be
    /// repeated, and whether something may have been charged.
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError>;

    /// Begins to load the states of these checks, because a large table is not in the processor's caches. It decides and
    /// changes nothing, and never waits. A caller that knows the next batches prefetches all of them, then decides each in turn: it
    /// waits for memory once instead of once for each key.
    fn prefetch(&self, checks: &[QuotaCheck<'_>]) {
        let _ = checks;
    }
}

impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        (**self).decide(checks, answers)
    }

    fn prefetch(&self, checks: &[QuotaCheck<'_>]) {
        (**self).prefetch(checks);
    }
}
