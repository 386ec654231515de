//! Reservations that Redis stores: charge an estimate now; any process that knows the id can settle it, once.
//!
//! Must not know: what the work is, how calls are made.

use std::fmt;
use std::sync::Arc;

use tollgate_core::reservation::ReservationId;
use tollgate_store as store;
use tollgate_store::{Op, ReplyNote};

use super::limiter::{Limiter, RedisLimiterInner};
use super::random;
use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};

/// A charged estimate. Correct it once with [`settle`](Self::settle) or [`cancel`](Self::cancel).
///
/// Redis stores it by its [id](Self::id) for the limiter's [hold](super::LimiterBuilder::hold), so another process, or this
/// one after a crash, can settle it with [`Limiter::settle`]. Dropping it keeps the estimate charged.
#[must_use = "a reservation stays charged as estimated until it is settled or cancelled"]
pub struct Reservation {
    shared: Arc<RedisLimiterInner>,
    key: OwnedKey,
    id: ReservationId,
    admission: Admission,
}

/// The result of settling or cancelling a reservation. Repeating the call is safe: only the first call changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettlementOutcome {
    /// The charge was corrected by this call.
    Done,
    /// The reservation was settled or cancelled before. A repeated call returns this. Nothing changed.
    AlreadyClosed,
    /// The hold has expired, so the estimate stays charged. Nothing changed.
    Expired,
    /// Redis has no such reservation for this key. Nothing changed.
    Unknown,
}

impl Limiter {
    /// Charges an estimate like [`spend`](Self::spend). Correct it when the actual cost is known.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped), and the caller
    /// does not know its id. With [`reserve_as`](Self::reserve_as) the caller chooses the id.
    ///
    /// # Errors
    /// A limit denies, also because this key has [too many](super::ReservationRetention::max_records) stored reservations; the
    /// key is too long; or the server did not decide.
    pub async fn reserve(&self, key: impl AsKey, estimate: u64) -> Result<Reservation, Error> {
        let id = ReservationId(random::random_id());
        self.reserve_as(key, id, estimate).await
    }

    /// Like [`reserve`](Self::reserve), with an id that the caller chooses. This is the only charge that may be repeated when
    /// its reply was [lost](Error::may_have_charged). If the reservation exists, the call returns the cost that was charged
    /// then and charges nothing.
    ///
    /// # Errors
    /// As for [`reserve`](Self::reserve).
    pub async fn reserve_as(
        &self,
        key: impl AsKey,
        id: ReservationId,
        estimate: u64,
    ) -> Result<Reservation, Error> {
        let key = key.as_key()?;
        let op = Op::Reserve {
            id,
            cost: estimate,
            hold: self.shared.hold,
        };
        let mut admission = self.shared.decide(&key, estimate, op).await?;
        // An earlier call with this id may have charged another cost than this call requests.
        admission.set_cost_to_receipts();
        Ok(Reservation {
            shared: Arc::clone(&self.shared),
            key: OwnedKey::from_key(&key),
            id,
            admission,
        })
    }

    /// Settles a reservation by its key and id. See [`Reservation::settle`].
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. It is safe to retry.
    pub async fn settle(
        &self,
        key: impl AsKey,
        id: ReservationId,
        actual: u64,
    ) -> Result<SettlementOutcome, Error> {
        let op = Op::SettleReserved { id, actual };
        self.shared.close(&key.as_key()?, op).await
    }

    /// Cancels a reservation by its key and id. See [`Reservation::cancel`].
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. It is safe to retry.
    pub async fn cancel(
        &self,
        key: impl AsKey,
        id: ReservationId,
    ) -> Result<SettlementOutcome, Error> {
        let op = Op::CancelReserved(id);
        self.shared.close(&key.as_key()?, op).await
    }
}

impl RedisLimiterInner {
    async fn close(&self, key: &store::StoreKey<'_>, op: Op) -> Result<SettlementOutcome, Error> {
        let admission = self.decide(key, 0, op).await?;
        let mut notes = admission.limits_with_replies().map(|(_, reply)| reply.note);
        // All limits of a limiter are reserved and closed together, so the first note that is not plain stands for all.
        Ok(match notes.find(|note| *note != ReplyNote::Plain) {
            Some(ReplyNote::AlreadyClosed) => SettlementOutcome::AlreadyClosed,
            Some(ReplyNote::ReservationExpired) => SettlementOutcome::Expired,
            Some(ReplyNote::ReservationUnknown) => SettlementOutcome::Unknown,
            _ => SettlementOutcome::Done,
        })
    }
}

impl Reservation {
    /// What was charged, and the status of the limits at that time.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// The id of the reservation in Redis. To settle it after a crash, store it with the key.
    #[must_use]
    pub const fn id(&self) -> ReservationId {
        self.id
    }

    /// Corrects the charge to the actual cost. A lower cost is refunded. A higher cost is charged even if it is not available,
    /// down to the overdraft, because the work is done. Takes `&self`, so that the call can be repeated after any error.
    ///
    /// # Errors
    /// The server did not decide.
    pub async fn settle(&self, actual: u64) -> Result<SettlementOutcome, Error> {
        let id = self.id;
        self.close(Op::SettleReserved { id, actual }).await
    }

    /// Refunds the whole charge, because the work was not done. May be repeated like [`settle`](Self::settle).
    ///
    /// # Errors
    /// The server did not decide.
    pub async fn cancel(&self) -> Result<SettlementOutcome, Error> {
        self.close(Op::CancelReserved(self.id)).await
    }

    async fn close(&self, op: Op) -> Result<SettlementOutcome, Error> {
        let parts = self.key.parts();
        let key = store::StoreKey::from_parts(&parts)?;
        self.shared.close(&key, op).await
    }
}

impl fmt::Debug for Reservation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("id", &self.id)
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}
