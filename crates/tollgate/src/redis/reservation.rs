//! Charging an estimate now and the real cost later, remembered by the server: whoever knows the id can settle it, once.
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

/// An estimate that was charged, to be corrected once.
///
/// The server remembers it by its [id](Self::id) for as long as the limiter's [hold](super::Builder::hold), so another
/// process, or this one after a crash, can settle it with [`Limiter::settle`]. Dropping it keeps the estimate charged.
#[must_use = "a reservation stays charged as estimated until it is settled or cancelled"]
pub struct Reservation {
    shared: Arc<RedisLimiterInner>,
    key: OwnedKey,
    id: ReservationId,
    allowed: Admission,
}

/// What settling or cancelling a reservation came to. Repeating it is safe: only the first call changes anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SettlementOutcome {
    /// The charge was corrected by this call.
    Done,
    /// It was settled or cancelled before, and nothing changed: this is how a repeated call answers.
    AlreadyClosed,
    /// It was held too long and stays charged. Nothing changed.
    Expired,
    /// The server knows of no such reservation under this key. Nothing changed.
    Unknown,
}

impl Limiter {
    /// Charges an estimate like [`spend`](Self::spend), to be corrected when the real cost is known.
    ///
    /// Dropping the future in the middle of the call [may leave its charge](super#when-a-future-is-dropped), under an id that
    /// nobody knows; [`reserve_as`](Self::reserve_as) has one that the caller knows.
    ///
    /// # Errors
    /// A limit denies, also because [too many](super::Remembering::most) reservations are remembered for this key; the
    /// key is too long; or the server did not decide.
    pub async fn reserve(&self, key: impl AsKey, estimate: u64) -> Result<Reservation, Error> {
        let id = ReservationId(random::random_id());
        self.reserve_as(key, id, estimate).await
    }

    /// Like [`reserve`](Self::reserve), under an id that the caller chose: the only charge that may be repeated when its
    /// answer was [lost](Error::may_have_charged). A reservation that was made before answers yes, with what it was
    /// charged then, and nothing is charged again.
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
        let mut allowed = self.shared.decide(&key, estimate, op).await?;
        // What an earlier call charged may not be what this one asks for.
        allowed.set_cost_to_receipts();
        Ok(Reservation {
            shared: Arc::clone(&self.shared),
            key: OwnedKey::from_key(&key),
            id,
            allowed,
        })
    }

    /// Settles a reservation of which only the key and the id are known. See [`Reservation::settle`].
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. It is safe to try again.
    pub async fn settle(
        &self,
        key: impl AsKey,
        id: ReservationId,
        actual: u64,
    ) -> Result<SettlementOutcome, Error> {
        let op = Op::SettleReserved { id, actual };
        self.shared.close(&key.as_key()?, op).await
    }

    /// Gives a reservation back of which only the key and the id are known. See [`Reservation::cancel`].
    ///
    /// # Errors
    /// The key is too long, or the server did not decide. It is safe to try again.
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
        let allowed = self.decide(key, 0, op).await?;
        let mut notes = allowed.limits_with_replies().map(|(_, answer)| answer.note);
        // The limits of one limiter are reserved and closed together; the first that says otherwise is told.
        Ok(match notes.find(|note| *note != ReplyNote::Plain) {
            Some(ReplyNote::AlreadyClosed) => SettlementOutcome::AlreadyClosed,
            Some(ReplyNote::ReservationExpired) => SettlementOutcome::Expired,
            Some(ReplyNote::ReservationUnknown) => SettlementOutcome::Unknown,
            _ => SettlementOutcome::Done,
        })
    }
}

impl Reservation {
    /// What was charged, and where the limits stood then.
    pub const fn allowed(&self) -> &Admission {
        &self.allowed
    }

    /// What the server knows it by. Write it down, with the key, where it outlives the process.
    #[must_use]
    pub const fn id(&self) -> ReservationId {
        self.id
    }

    /// Corrects the charge to what the work really cost. Less is given back; more is charged whether or not it is there,
    /// down to the overdraft, because the work is done. Takes `&self` because it may be repeated: after an error, whether
    /// or not it [may have](Error::may_have_charged) been carried out.
    ///
    /// # Errors
    /// The server did not decide.
    pub async fn settle(&self, actual: u64) -> Result<SettlementOutcome, Error> {
        let id = self.id;
        self.close(Op::SettleReserved { id, actual }).await
    }

    /// Gives the charge back: the work was not done. May be repeated like [`settle`](Self::settle).
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
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}
