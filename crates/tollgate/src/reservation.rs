//! Charging an estimate now and the real cost later, for work whose price is known when it is done.
//!
//! Must not know: what the work is, how state is kept.

use std::fmt;
use std::sync::Arc;

use tollgate_store::{Clock, SystemClock};

use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};
use crate::limiter::{Limiter, LimiterInner};

/// An estimate that was charged, to be corrected once.
///
/// Dropping it keeps the estimate charged: whoever loses a reservation, by a panic or a cancelled task, has most likely
/// done the work, and a limit errs towards what was promised. Give it back with [`cancel`](Self::cancel) where that is
/// known to be wrong. There is no time limit, but what refill has replaced meanwhile is not given back again.
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
    allowed: Admission,
}

impl<C: Clock> Limiter<C> {
    /// Charges an estimate like [`spend`](Self::spend), to be corrected when the real cost is known.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    pub fn reserve(&self, key: impl AsKey, estimate: u64) -> Result<Reservation<C>, Error> {
        let key = key.as_key()?;
        Ok(Reservation {
            allowed: self.shared.spend(&key, estimate)?,
            key: OwnedKey::from_key(&key),
            shared: Arc::clone(&self.shared),
        })
    }
}

impl<C: Clock> Reservation<C> {
    /// What was charged, and where the limits stood then.
    pub const fn allowed(&self) -> &Admission {
        &self.allowed
    }

    /// Corrects the charge to what the work really cost. Less is given back; more is charged whether or not it is there,
    /// down to the overdraft, because the work is done.
    ///
    /// # Errors
    /// Never in memory. The type leaves room for stores that can be out of reach.
    pub fn settle(self, actual: u64) -> Result<(), Error> {
        self.key
            .with_key(|key| self.shared.settle(&key, &self.allowed, actual))
    }

    /// Gives the charge back: the work was not done.
    ///
    /// # Errors
    /// Never in memory. The type leaves room for stores that can be out of reach.
    pub fn cancel(self) -> Result<(), Error> {
        self.settle(0)
    }
}

impl<C> fmt::Debug for Reservation<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reservation")
            .field("allowed", &self.allowed)
            .finish_non_exhaustive()
    }
}
