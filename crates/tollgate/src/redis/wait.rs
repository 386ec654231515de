//! Waiting for room over Redis, on tokio's timer: with a maximum, or in line with the others of this process.
//!
//! Must not know: how calls are made.

use std::time::Duration;

use tokio::time::Instant;
use tollgate_store as store;
use tollgate_store::Op;

use super::limiter::{Limiter, RedisLimiterInner};
use super::release_queue::BackgroundRelease;
use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};
use crate::operations::settlement_ops;

impl Limiter {
    /// Waits until one unit is there, but at most `max`, and spends it. If it is known from the start that `max` is not
    /// enough, answers at once. Nothing is charged unless the answer is yes.
    ///
    /// Callers are in no order. Dropping the future while it sleeps charges nothing, and gives a place in a queue back; in
    /// the middle of a call the charge may be made all the same, as in every verb.
    ///
    /// # Errors
    /// The time is too short, the cost is never admitted, the key is too long, or the server did not decide. Waiting ends
    /// with the first call that fails.
    pub async fn wait(&self, key: impl AsKey, max: Duration) -> Result<Admission, Error> {
        self.wait_n(key, 1, max).await
    }

    /// Like [`wait`](Self::wait), for `cost` units.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub async fn wait_n(
        &self,
        key: impl AsKey,
        cost: u64,
        max: Duration,
    ) -> Result<Admission, Error> {
        // A time that cannot be told is no maximum.
        let deadline = Instant::now().checked_add(max);
        self.shared.wait_until(&key.as_key()?, cost, deadline).await
    }

    /// Waits until one unit is there, and spends it. There is no maximum; see [`wait`](Self::wait) for one.
    ///
    /// Callers of *this process* who wait for the same key go in the order in which they were first polled. Between
    /// processes there is no order: whoever asks first when there is room gets it.
    ///
    /// # Errors
    /// A limit of zero never has room; too many are waiting; the key is too long; or the server did not decide.
    pub async fn until_ready(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.until_ready_n(key, 1).await
    }

    /// Like [`until_ready`](Self::until_ready), for `cost` units.
    ///
    /// # Errors
    /// The cost is never admitted; too many are waiting; the key is too long; or the server did not decide.
    pub async fn until_ready_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let place = self.shared.wait_queues.join(&key)?;
        // Tokio's mutex is fair: it lets waiters in by the order in which they asked.
        let _turn = place.turn.lock().await;
        self.shared.wait_until(&key, cost, None).await
    }
}

impl RedisLimiterInner {
    async fn wait_until(
        &self,
        key: &store::StoreKey<'_>,
        cost: u64,
        deadline: Option<Instant>,
    ) -> Result<Admission, Error> {
        let left = || match deadline {
            Some(deadline) => deadline.saturating_duration_since(Instant::now()),
            None => Duration::MAX,
        };
        loop {
            let denied = match self.decide(key, cost, Op::Spend(cost)).await {
                Ok(allowed) if allowed.wait().is_zero() => return Ok(allowed),
                // A place in a queue is ours from now on; only the time has to pass.
                Ok(allowed) if allowed.wait() <= left() => {
                    let time = allowed.wait();
                    let mut held = PendingQueueSlot::new(self, key, &allowed);
                    tokio::time::sleep(time).await;
                    held.release = None;
                    return Ok(allowed);
                }
                Ok(allowed) => {
                    self.settle(key, &allowed, 0).await?;
                    return Err(allowed.to_denial(cost).into());
                }
                Err(Error::Denied(denied)) => denied,
                Err(error) => return Err(error),
            };
            match denied.retry_after() {
                Some(time) if time <= left() => {
                    tokio::time::sleep(self.sleeper.with_jitter(time).min(left())).await;
                }
                _ => return Err(denied.into()),
            }
        }
    }
}

/// A place in a queue that is given back unless its turn comes.
struct PendingQueueSlot<'a> {
    shared: &'a RedisLimiterInner,
    release: Option<BackgroundRelease>,
}

impl<'a> PendingQueueSlot<'a> {
    fn new(shared: &'a RedisLimiterInner, key: &store::StoreKey<'_>, allowed: &Admission) -> Self {
        let rules = shared.active_limits();
        let parts = settlement_ops(&rules, allowed, 0);
        let errand = BackgroundRelease {
            key: OwnedKey::from_key(key),
            ops: parts.map(|(ruled, op)| (*ruled, op)).collect(),
        };
        Self {
            shared,
            release: Some(errand),
        }
    }
}

impl Drop for PendingQueueSlot<'_> {
    fn drop(&mut self) {
        if let Some(errand) = self.release.take() {
            self.shared.redis().releases().enqueue(errand);
        }
    }
}
