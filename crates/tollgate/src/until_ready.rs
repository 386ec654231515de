//! `until_ready`: waits asynchronously until a limit admits, in first-in-first-out order for each key.
//!
//! Each key with waiters has a queue. The first waiter decides and sleeps; the others wait for it to leave the queue.
//! Must not know: how state is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_store as store;
use tollgate_store::Clock;

use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};
use crate::limiter::{Limiter, LimiterInner};

/// The default number of callers that may wait at the same time.
pub(crate) const DEFAULT_MAX_WAITING: usize = 65_536;

impl<C: Clock> Limiter<C> {
    /// Waits until one unit is available and spends it. Needs the feature `tokio` and a tokio runtime with a timer.
    ///
    /// - *Order.* Callers that wait for the same key are admitted in the order in which they were first polled. Callers of
    ///   other keys do not delay them. A small cost never overtakes a large one. `check` and `spend` do not queue.
    /// - *Cancel-safe.* Dropping the future charges nothing and lets the next caller proceed. A slot in a queue
    ///   ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) is released as far as later slots allow.
    /// - *No deadline.* Wrap it in `tokio::time::timeout` to set one.
    /// - *Precision.* Tokio's timer has a resolution of one millisecond, so a caller is admitted up to 1 ms late, plus the
    ///   [jitter](crate::LimiterBuilder::jitter). It is never admitted early.
    ///
    /// ```
    /// use tollgate::Limiter;
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let limiter = Limiter::per_second(500).burst(1).build()?;
    /// for _call in 0..3 {
    ///     limiter.until_ready("upstream").await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// A limit of zero never admits; too many callers are waiting; the key is too long.
    pub async fn until_ready(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.until_ready_n(key, 1).await
    }

    /// Like [`until_ready`](Self::until_ready), for `cost` units.
    ///
    /// # Errors
    /// The cost exceeds what a limit ever admits; too many callers are waiting; the key is too long.
    pub async fn until_ready_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let shared = &*self.shared;
        let place = shared.wait_queues.join(&key)?;
        // Tokio's mutex is fair: it admits waiters in the order in which they called `lock`.
        let _turn = place.turn.lock().await;
        loop {
            let denial = match shared.spend(&key, cost) {
                Ok(admission) if admission.wait().is_zero() => return Ok(admission),
                Ok(admission) => {
                    let time = admission.wait();
                    let held = PendingQueueSlot::new(shared, &key, admission);
                    tokio::time::sleep(time).await;
                    return held.commit();
                }
                Err(Error::Denied(denial)) => denial,
                Err(error) => return Err(error),
            };
            // No await lies between an admission above and the return, so a dropped future has charged nothing.
            let Some(time) = denial.retry_after() else {
                return Err(denial.into());
            };
            tokio::time::sleep(shared.sleeper.with_jitter(time)).await;
        }
    }
}

/// A slot in a leaky-bucket queue. Dropping it before the wait ends releases the slot.
struct PendingQueueSlot<'a, C: Clock> {
    shared: &'a LimiterInner<C>,
    key: OwnedKey,
    admission: Option<Admission>,
}

impl<'a, C: Clock> PendingQueueSlot<'a, C> {
    fn new(shared: &'a LimiterInner<C>, key: &store::StoreKey<'_>, admission: Admission) -> Self {
        Self {
            shared,
            key: OwnedKey::from_key(key),
            admission: Some(admission),
        }
    }

    fn commit(mut self) -> Result<Admission, Error> {
        // Only this method and `drop` take the value, so it is always present here.
        self.admission
            .take()
            .map_or_else(|| self.key.with_key(|key| self.shared.spend(&key, 0)), Ok)
    }
}

impl<C: Clock> Drop for PendingQueueSlot<'_, C> {
    fn drop(&mut self) {
        if let Some(admission) = self.admission.take() {
            // A settlement in memory does not fail, and `drop` cannot return an error.
            let _settled = self
                .key
                .with_key(|key| self.shared.settle(&key, &admission, 0))
                .is_ok();
        }
    }
}

/// The queues of callers that wait, by key.
#[derive(Debug)]
pub(crate) struct WaitQueues {
    waiting: Mutex<WaitersByKey>,
    max_waiting: usize,
}

#[derive(Debug, Default)]
struct WaitersByKey {
    by_key: HashMap<Box<[u8]>, KeyQueue>,
    waiters: usize,
}

#[derive(Debug, Default)]
struct KeyQueue {
    turn: Arc<tokio::sync::Mutex<()>>,
    waiters: usize,
}

/// One waiter in the queue of a key. Leaves the queue on drop.
pub(crate) struct WaiterGuard<'a> {
    queues: &'a WaitQueues,
    key: Box<[u8]>,
    pub(crate) turn: Arc<tokio::sync::Mutex<()>>,
}

impl WaitQueues {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            waiting: Mutex::default(),
            max_waiting: most,
        }
    }

    pub(crate) fn join(&self, key: &store::StoreKey<'_>) -> Result<WaiterGuard<'_>, Error> {
        let mut encoded = Vec::with_capacity(key.len().saturating_add(2));
        key.encode(|piece| encoded.extend_from_slice(piece));
        let key = encoded.into_boxed_slice();
        let mut waiting = self.lock();
        if waiting.waiters >= self.max_waiting {
            return Err(Error::TooManyWaiting {
                most: self.max_waiting,
            });
        }
        waiting.waiters = waiting.waiters.saturating_add(1);
        let line = waiting.by_key.entry(key.clone()).or_default();
        line.waiters = line.waiters.saturating_add(1);
        let turn = Arc::clone(&line.turn);
        Ok(WaiterGuard {
            queues: self,
            key,
            turn,
        })
    }

    fn lock(&self) -> MutexGuard<'_, WaitersByKey> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for WaiterGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.queues.lock();
        waiting.waiters = waiting.waiters.saturating_sub(1);
        if let Some(line) = waiting.by_key.get_mut(&self.key) {
            line.waiters = line.waiters.saturating_sub(1);
            if line.waiters == 0 {
                waiting.by_key.remove(&self.key);
            }
        }
    }
}
