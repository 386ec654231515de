//! So many at once: permits that are given back when they are dropped.
//!
//! Must not know: rates, how state is kept, what the work is.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::{Concurrency, MAX_CAPACITY, Nanos};
use tollgate_store as store;
use tollgate_store::{Clock, Memory, Note, Op, QuotaCheck, Ruled, StoreReply, SystemClock};

use crate::denied::{Denied, Error};
use crate::invalid::InvalidLimiter;
use crate::key::{AsKey, OwnedKey};
use crate::name::Name;
use crate::table::{DEFAULT_KEYS, Table};

/// Lets so many in at once, for each key. Cheap to clone; clones are the same gate.
///
/// ```
/// use tollgate::Gate;
///
/// let gate = Gate::of(2).build()?;
/// let first = gate.enter("tenant-7")?;
/// let second = gate.enter("tenant-7")?;
/// assert!(gate.enter("tenant-7").is_err());
/// drop(first);
/// assert!(gate.enter("tenant-7").is_ok());
/// # drop(second);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Gate<C = SystemClock> {
    shared: Arc<Shared<C>>,
}

struct Shared<C> {
    table: Table<C>,
    name: Name,
    ruled: Ruled,
    has_leases: bool,
}

/// A gate before it is built.
#[must_use = "a builder does nothing until `build` is called"]
pub struct GateBuilder<C = SystemClock> {
    name: Name,
    most: u64,
    lease: Option<Duration>,
    keys: usize,
    clock: Box<dyn FnOnce() -> C>,
}

impl Gate {
    /// Lets `most` in at once for each key; none at all if it is zero.
    pub fn of(most: u64) -> GateBuilder {
        GateBuilder {
            name: Name::literal("concurrency"),
            most,
            lease: None,
            keys: DEFAULT_KEYS,
            clock: Box::new(SystemClock::new),
        }
    }
}

impl<C> GateBuilder<C> {
    /// What the gate is called in denials: `concurrency` unless said otherwise.
    pub fn name(mut self, name: impl Into<Name>) -> Self {
        self.name = name.into();
        self
    }

    /// Ends a permit by itself after this long unless it is [renewed](Permit::renew). Without leases a permit is held
    /// until it is dropped, however long that takes, and a denial cannot say when to come back.
    pub const fn lease(mut self, time: Duration) -> Self {
        self.lease = Some(time);
        self
    }

    /// How many keys are in use at the same time: [`DEFAULT_KEYS`] unless said otherwise.
    pub const fn keys(mut self, keys: usize) -> Self {
        self.keys = keys;
        self
    }

    /// Counts leases by another clock than the machine's, so that tests can move time.
    pub fn clock<D: Clock + 'static>(self, clock: D) -> GateBuilder<D> {
        GateBuilder {
            name: self.name,
            most: self.most,
            lease: self.lease,
            keys: self.keys,
            clock: Box::new(move || clock),
        }
    }
}

#[cfg(feature = "redis")]
impl GateBuilder {
    /// Counts in Redis or Valkey, so that many processes have one gate: see [`crate::redis::Gate`].
    pub fn over(self, redis: &crate::redis::Redis) -> crate::redis::GateBuilder {
        let misplaced = (self.keys != DEFAULT_KEYS).then_some("keys");
        crate::redis::GateBuilder::new(redis, self.name, self.most, self.lease, misplaced)
    }
}

impl<C: Clock> GateBuilder<C> {
    /// Checks everything and makes the gate.
    ///
    /// # Errors
    /// More than 65,536 at once, a lease of no time, or a table that cannot be made.
    pub fn build(self) -> Result<Gate<C>, InvalidLimiter> {
        let name = self.name;
        let lease = self.lease.map_or(MAX_CAPACITY, Nanos::from);
        let quota = match Concurrency::new(self.most, lease) {
            Ok(quota) => quota,
            Err(cause) => return Err(InvalidLimiter::Quota { name, cause }),
        };
        let table = Table::for_keys(self.keys, (self.clock)())?;
        let ruled = Ruled {
            id: table.number()?,
            limit: quota.into(),
        };
        table.learn([&ruled]);
        Ok(Gate {
            shared: Arc::new(Shared {
                table,
                name,
                ruled,
                has_leases: self.lease.is_some(),
            }),
        })
    }
}

impl<C: Clock> Gate<C> {
    /// Takes one place, and holds it until the permit is dropped.
    ///
    /// # Errors
    /// All places are taken, or the key is too long.
    pub fn enter(&self, key: impl AsKey) -> Result<Permit<C>, Error> {
        self.enter_n(key, 1)
    }

    /// Takes `places` places for one permit.
    ///
    /// # Errors
    /// There are not so many free, or not so many at all, or the key is too long.
    pub fn enter_n(&self, key: impl AsKey, places: u64) -> Result<Permit<C>, Error> {
        let key = key.as_key()?;
        let id = LeaseId(self.shared.table.lease());
        let weight = places;
        let answer = self.shared.ask(&key, Op::Acquire { id, weight })?;
        if answer.outcome.is_admitted() {
            let shared = Arc::clone(&self.shared);
            let key = OwnedKey::copy(&key);
            return Ok(Permit { shared, key, id });
        }
        let name = self.shared.name.clone();
        let denied = Denied::new(name, places, answer.outcome, answer.status);
        Err(Error::Denied(if self.shared.has_leases {
            denied
        } else {
            denied.without_time()
        }))
    }

    /// How many places are free for this key.
    ///
    /// # Errors
    /// The key is too long.
    pub fn free(&self, key: impl AsKey) -> Result<u64, Error> {
        // Holding no place at all is a look.
        let look = Op::Acquire {
            id: LeaseId(u128::MAX),
            weight: 0,
        };
        Ok(self.shared.ask(&key.as_key()?, look)?.status.remaining)
    }
}

impl<C: Clock> Shared<C> {
    fn ask(&self, key: &store::StoreKey<'_>, op: Op) -> Result<StoreReply, Error> {
        let check = QuotaCheck {
            key: *key,
            ruled: &self.ruled,
            op,
        };
        let (_, [answer]) = Memory::ask(&self.table.memory, [check])?;
        Ok(answer)
    }
}

/// A place, or several, held until it is dropped: by the end of a scope, a panic, or a cancelled task.
#[must_use = "a permit that is dropped at once limits nothing"]
pub struct Permit<C: Clock = SystemClock> {
    shared: Arc<Shared<C>>,
    key: OwnedKey,
    id: LeaseId,
}

impl<C: Clock> Permit<C> {
    /// Starts the lease anew. Answers false if it has ended and somebody else may be inside; it is not taken again.
    /// Without leases there is nothing to renew, and the answer is true.
    ///
    /// # Errors
    /// Never in memory. The type leaves room for stores that can be out of reach.
    pub fn renew(&self) -> Result<bool, Error> {
        let answer = self.change(Op::Renew(self.id))?;
        Ok(answer.note != Note::LeaseNotHeld)
    }

    fn change(&self, op: Op) -> Result<StoreReply, Error> {
        self.key.lend(|key| self.shared.ask(&key, op))
    }
}

impl<C: Clock> Drop for Permit<C> {
    fn drop(&mut self) {
        // In memory a release cannot fail; nobody is there to be told if it did.
        let _released = self.change(Op::Release(self.id)).is_ok();
    }
}

impl<C> Clone for Gate<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for Gate<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gate").field(&self.shared.name).finish()
    }
}

impl<C> fmt::Debug for GateBuilder<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("GateBuilder")
            .field("name", &self.name)
            .field("most", &self.most)
            .field("lease", &self.lease)
            .field("keys", &self.keys)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> fmt::Debug for Permit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.shared.name).finish()
    }
}
