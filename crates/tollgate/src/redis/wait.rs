//! `wait` and `until_ready` over Redis, on tokio's timer.
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
    /// Waits until one unit is available, for at most `max`, and spends it. Returns an error at once if `max` is too short.
    /// Charges nothing unless it returns `Ok`.
    ///
    /// Callers are not queued. Dropping the future while it sleeps charges nothing and releases a slot in a queue. Dropping it
    /// during a call [may leave a charge](super#when-a-future-is-dropped).
    ///
    /// # Errors
    /// `max` is too short, a limit of zero never admits, the key is too long, or the server did not decide. The first call
    /// that fails ends the wait.
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
        // A deadline beyond the range of `Instant` is no deadline.
        let deadline = Instant::now().checked_add(max);
        self.shared.wait_until(&key.as_key()?, cost, deadline).await
    }

    /// Waits until one unit is available and spends it. There is no deadline; see [`wait`](Self::wait) for one.
    ///
    /// Callers of *this process* that wait for the same key are admitted in the order in which they were first polled. Callers
    /// of different processes are not ordered.
    ///
    /// # Errors
    /// A limit of zero never admits; too many callers are waiting; the key is too long; or the server did not decide.
    pub async fn until_ready(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.until_ready_n(key, 1).await
    }

    /// Like [`until_ready`](Self::until_ready), for `cost` units.
    ///
    /// # Errors
    /// The cost exceeds what a limit ever admits; too many callers are waiting; the key is too long; or the server did not
    /// decide.
    pub async fn until_ready_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let place = self.shared.wait_queues.join(&key)?;
        // Tokio's mutex is fair: it admits waiters in the order in which they called `lock`.
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
            let denial = match self.decide(key, cost, Op::Spend(cost)).await {
                Ok(admission) if admission.wait().is_zero() => return Ok(admission),
                // The charge is made. The caller only has to wait for its slot in the queue.
                Ok(admission) if admission.wait() <= left() => {
                    let time = admission.wait();
                    let mut held = PendingQueueSlot::new(self, key, &admission);
                    tokio::time::sleep(time).await;
                    held.release = None;
                    return Ok(admission);
                }
                Ok(admission) => {
                    self.settle(key, &admission, 0).await?;
                    return Err(admission.to_denial(cost).into());
                }
                Err(Error::Denied(denial)) => denial,
                Err(error) => return Err(error),
            };
            match denial.retry_after() {
                Some(time) if time <= left() => {
                    tokio::time::sleep(self.sleeper.with_jitter(time).min(left())).await;
                }
                _ => return Err(denial.into()),
            }
        }
    }
}

/// A slot in a leaky-bucket queue. Dropping it before the wait ends releases the slot.
struct PendingQueueSlot<'a> {
    shared: &'a RedisLimiterInner,
    release: Option<BackgroundRelease>,
}

impl<'a> PendingQueueSlot<'a> {
    fn new(
        shared: &'a RedisLimiterInner,
        key: &store::StoreKey<'_>,
        admission: &Admission,
    ) -> Self {
        let limits = shared.active_limits();
        let parts = settlement_ops(&limits, admission, 0);
        let errand = BackgroundRelease {
            key: OwnedKey::from_key(key),
            ops: parts.map(|(limit, op)| (*limit, op)).collect(),
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
