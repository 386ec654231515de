//! What every store can be asked, and what it answers: a batch of checks, decided together, all or nothing.
//!
//! The memory store answers at once ([`Store`]); a remote one is awaited, with the same requests and answers. Must not
//! know: where state is kept, what keys or limits mean.

use std::num::NonZeroU16;

use tollgate_core::compose::BatchOutcome;
use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Receipt, Timestamp};

use crate::key::StoreKey;
use crate::store_error::StoreError;

pub use tollgate_core::limit::Op;

/// The most checks in one batch.
pub const MAX_CHECKS: usize = 32;

/// Which limit a state belongs to. Stable for as long as the state lives: two limits never share a number, and the
/// number of a limit that is gone is not given to another while its state may still be around.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LimitId(pub NonZeroU16);

/// A limit and its identity, ready to be decided on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IdentifiedLimit {
    /// Which limit it is. Tiers of one limit have the same id and share state.
    pub id: LimitId,
    /// The compiled quota.
    pub limit: Limit,
}

/// One limit's part in a request.
#[derive(Clone, Copy, Debug)]
pub struct QuotaCheck<'a> {
    /// Whose quota it is.
    pub key: StoreKey<'a>,
    /// Which limit.
    pub limit: &'a IdentifiedLimit,
    /// What is asked of it.
    pub op: Op,
}

/// What one limit answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreReply {
    /// What this limit says by itself.
    pub outcome: Outcome,
    /// Where it stands afterwards.
    pub status: QuotaStatus,
    /// What it was charged: nothing, unless all admitted.
    pub receipt: Receipt,
    /// What else there is to know.
    pub note: ReplyNote,
}

impl StoreReply {
    /// An answer to be overwritten.
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

/// What an outcome alone does not say.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum ReplyNote {
    /// Nothing.
    #[default]
    Plain,
    /// The table was full of keys that are being denied, so a newcomer was decided by the overflow sketch, which may
    /// deny too much but never too little. What it charged cannot be given back.
    Overflow,
    /// The reservation was made before; nothing was charged again.
    AlreadyReserved,
    /// The reservation was settled or cancelled before; nothing changed.
    AlreadyClosed,
    /// The reservation has expired and stays charged; nothing changed.
    ReservationExpired,
    /// No such reservation is known; nothing changed.
    ReservationUnknown,
    /// Too many reservations are open under this key; nothing was charged.
    ReservationsFull,
    /// The lease is not held: it was released, or has expired; nothing changed.
    LeaseNotHeld,
    /// The shared store did not answer, and what stands in for the limit on this node decided. What it charged is known
    /// here only.
    FallbackQuota,
    /// The shared store did not answer, and the limit admits then. Where it stands is not known.
    FailOpen,
    /// It was not asked, because another limit had refused already. Where it stands is not known.
    NotChecked,
}

/// A store that answers at once.
///
/// All checks of a batch are decided at one instant. If every one of them admits, all are charged, otherwise none is.
/// `answers` receives one answer per check, in order; it must be as long as `checks`. The same key under the same
/// limit may occur only once in a batch.
pub trait Store: Send + Sync {
    /// Decides on a batch.
    ///
    /// # Errors
    /// The batch makes no sense, or the store cannot answer. The error says whose fault it is, whether repeating the
    /// call is safe, and whether something may have been charged.
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError>;
}

/// A store that several share.
impl<S: Store + ?Sized> Store for std::sync::Arc<S> {
    fn decide(
        &self,
        checks: &[QuotaCheck<'_>],
        answers: &mut [StoreReply],
    ) -> Result<BatchOutcome, StoreError> {
        (**self).decide(checks, answers)
    }
}
