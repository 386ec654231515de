//! Reservations: charge an estimate now and correct it when the actual cost is known.
//!
//! Must not know: what the work is, how state is kept.

use std::fmt;
use std::sync::Arc;

use tollgate_store::{Clock, SystemClock};

use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};
use crate::limiter::{Limiter, LimiterInner};

/// A charged estimate. Correct it once with [`settle`](Self::settle) or [`cancel`](Self::cancel).
///
/// Dropping it keeps the estimate charged, because a task that panics or is cancelled has most likely done the work. If
/// the work was not done, call [`cancel`](Self::cancel). A reservation does not expire, but units that were refilled in the
/// meantime are not refunded.
///
/// ```
/// use tollgate::Limiter;
///
/// let tokens = Limiter::per_minute(10_000).name("tokens").build()?;
/// let reserved = tokens.reserve("team-7", 4_000)?;
/// // … the model answers, and used less …
/// reserved.settle(1_500)?;
/// assert!(tokens.peek("team-7")?.tightest().remaining >= 8_500);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a reservation stays charged as estimated until it is settled or cancelled"]
pub struct Reservation<C = SystemClock> {
    shared: Arc<LimiterInner<C>>,
    key: OwnedKey,
    admission: Admission,
}

impl<C: Clock> Limiter<C> {
    /// Charges an estimate like [`spend`](Self::spend). Correct it when the actual cost is known.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    pub fn reserve(&self, key: impl AsKey, estimate: u64) -> Result<Reservation<C>, Error> {
        let key = key.as_key()?;
        Ok(Reservation {
            admission: self.shared.spend(&key, estimate)?,
            key: OwnedKey::from_key(&key),
            shared: Arc::clone(&self.shared),
        })
    }
}

impl<C: Clock> Reservation<C> {
    /// What was charged, and the status of the limits at that time.
    pub const fn admission(&self) -> &Admission {
        &self.admission
    }

    /// Corrects the charge to the actual cost. A lower cost is refunded. A higher cost is charged even if it is not available,
    /// down to the overdraft, because the work is done.
    ///
    /// # Errors
    /// None in memory. The signature allows for stores that can be unreachable.
    pub fn settle(self, actual: u64) -> Result<(), Error> {
        self.key
            .with_key(|key| self.shared.settle(&key, &self.admission, actual))
    }

    /// Refunds the whole charge, because the work was not done.
    ///
    /// # Errors
    /// None in memory. The signature allows for stores that can be unreachable.
    pub fn cancel(self) -> Result<(), Error> {
        self.settle(0)
    }
}

impl<C> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("admission", &self.admission)
            .finish_non_exhaustive()
    }
}
