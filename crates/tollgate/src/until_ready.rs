//! Waiting without a thread: until a limit has room, in line with the others who wait for the same key.
//!
//! A line exists while somebody stands in it. Whoever is first decides and waits; the rest wait for the first to leave.
//! Must not know: how state is kept.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_store as store;
use tollgate_store::Clock;

use crate::admission::Admission;
use crate::error::Error;
use crate::key::{AsKey, OwnedKey};
use crate::limiter::{Limiter, LimiterInner};

/// How many may wait at the same time unless somebody says otherwise.
pub(crate) const DEFAULT_MAX_WAITING: usize = 65_536;

impl<C: Clock> Limiter<C> {
    /// Waits until one unit is there, and spends it. Needs the feature `tokio`, and tokio's timer.
    ///
    /// - *In line.* Callers who wait for the same key go in the order in which they were first polled; those of other keys
    ///   do not hold them up. A large cost is not overtaken by a small one. `check` and its kind do not stand in line.
    /// - *Cancel-safe.* Dropping the future at any time charges nothing and lets the next one forward. A place in a queue
    ///   ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) is given back as far as later places allow.
    /// - *No deadline.* Put it into `tokio::time::timeout` for one.
    /// - Tokio's timer counts in milliseconds, so a caller comes up to one later than it might, and by the
    ///   [jitter](crate::Builder::jitter) more. Never earlier.
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
    /// A limit of zero never has room; too many are waiting; the key is too long.
    pub async fn until_ready(&self, key: impl AsKey) -> Result<Admission, Error> {
        self.until_ready_n(key, 1).await
    }

    /// Like [`until_ready`](Self::until_ready), for `cost` units.
    ///
    /// # Errors
    /// The cost is never admitted; too many are waiting; the key is too long.
    pub async fn until_ready_n(&self, key: impl AsKey, cost: u64) -> Result<Admission, Error> {
        let key = key.as_key()?;
        let shared = &*self.shared;
        let place = shared.wait_queues.join(&key)?;
        // Tokio's mutex is fair: it lets waiters in by the order in which they asked.
        let _turn = place.turn.lock().await;
        loop {
            let denied = match shared.spend(&key, cost) {
                Ok(allowed) if allowed.wait().is_zero() => return Ok(allowed),
                Ok(allowed) => {
                    let time = allowed.wait();
                    let held = PendingQueueSlot::new(shared, &key, allowed);
                    tokio::time::sleep(time).await;
                    return held.commit();
                }
                Err(Error::Denied(denied)) => denied,
                Err(error) => return Err(error),
            };
            // No await lies between an admission above and the return, so a dropped future has charged nothing.
            let Some(time) = denied.retry_after() else {
                return Err(denied.into());
            };
            tokio::time::sleep(shared.sleeper.with_jitter(time)).await;
        }
    }
}

/// A place in a queue that is given back unless its turn comes.
struct PendingQueueSlot<'a, C: Clock> {
    shared: &'a LimiterInner<C>,
    key: OwnedKey,
    allowed: Option<Admission>,
}

impl<'a, C: Clock> PendingQueueSlot<'a, C> {
    fn new(shared: &'a LimiterInner<C>, key: &store::StoreKey<'_>, allowed: Admission) -> Self {
        Self {
            shared,
            key: OwnedKey::from_key(key),
            allowed: Some(allowed),
        }
    }

    fn commit(mut self) -> Result<Admission, Error> {
        // It is taken only here and on drop, so there is always one.
        self.allowed
            .take()
            .map_or_else(|| self.key.with_key(|key| self.shared.spend(&key, 0)), Ok)
    }
}

impl<C: Clock> Drop for PendingQueueSlot<'_, C> {
    fn drop(&mut self) {
        if let Some(allowed) = self.allowed.take() {
            // In memory a settlement cannot fail; nobody is there to be told if it did.
            let _settled = self
                .key
                .with_key(|key| self.shared.settle(&key, &allowed, 0))
                .is_ok();
        }
    }
}

/// Everyone who waits, by key.
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

/// One caller's place in a line. Leaves it on drop.
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
