//! The limiter: its limits, its table, and `check`.
//!
//! The operations that return more are in `operations.rs`, `wait.rs` and `until_ready.rs`. Must not know: how waiting is
//! done, what keys mean.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard};

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Outcome, QuotaStatus, Rate, TokenBucket};
use tollgate_store as store;
use tollgate_store::{Clock, Op, StoreUsage, SystemClock};

use crate::active_limits::{ActiveLimit, ActiveLimits, SingleBucket};
use crate::builder::LimiterBuilder;
use crate::error::{Denial, Error};
use crate::invalid::InvalidLimiter;
use crate::key::AsKey;
use crate::limit_name::LimitName;
use crate::limit_table::LimitTable;
use crate::limits::{Limits, MAX_LIMITS, TokenBucketLimit};
use crate::sleeper::JitteredSleeper;

/// Limits the rate of each key. Cheap to clone; clones share their limits and state.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::per_second(10).burst(20).build()?;
/// limiter.check("user:42")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The type parameter is the clock. It defaults to the system clock; a test can [pass another](LimiterBuilder::clock).
pub struct Limiter<C = SystemClock> {
    pub(crate) shared: Arc<LimiterInner<C>>,
}

/// The state that clones share.
pub(crate) struct LimiterInner<C> {
    pub(crate) table: Arc<LimitTable<C>>,
    /// The limits that the limiter was built with. They are read without a lock until the first `replace`.
    initial: Arc<ActiveLimits>,
    /// The single initial limit, if it is a token bucket.
    initial_bucket: Option<SingleBucket>,
    is_replaced: AtomicBool,
    current: RwLock<Arc<ActiveLimits>>,
    pub(crate) sleeper: JitteredSleeper,
    #[cfg(feature = "tokio")]
    pub(crate) wait_queues: crate::until_ready::WaitQueues,
}

impl Limiter {
    /// A token bucket with this many units per second and a burst of the same size.
    pub fn per_second(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_second(units))
    }

    /// A token bucket with this many units per minute and a burst of the same size.
    pub fn per_minute(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_minute(units))
    }

    /// A token bucket with this many units per hour and a burst of the same size.
    pub fn per_hour(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_hour(units))
    }

    /// A token bucket with this many units per 24 hours and a burst of the same size.
    pub fn per_day(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_day(units))
    }

    /// A token bucket with any rate and a burst of the same size.
    pub fn from_rate(rate: Rate) -> LimiterBuilder<TokenBucketLimit> {
        LimiterBuilder::new(TokenBucketLimit {
            name: LimitName::literal(Limits::UNNAMED),
            bucket: TokenBucket::builder(rate),
        })
    }

    /// Starts a limiter with several limits, or with algorithms other than the token bucket.
    ///
    /// ```
    /// use tollgate::{Calendar, FixedWindow, Limiter, Rate, TokenBucket, UtcOffset, Window};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit("per-second", TokenBucket::builder(Rate::per_second(10)).burst(20))
    ///     .limit("per-month", FixedWindow::builder(1_000_000, Window::Calendar(Calendar::Month, UtcOffset::UTC)))
    ///     .build()?;
    /// limiter.check("user:42")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> LimiterBuilder<Limits> {
        LimiterBuilder::new(Limits::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Spends one unit of every limit. If one limit denies, none is charged.
    ///
    /// `Ok` means that the caller may proceed now. If a queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) would make
    /// the caller wait, `check` denies. [`spend`](Self::spend), [`wait`](Self::wait) and `until_ready` take the slot instead.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    #[inline]
    pub fn check(&self, key: impl AsKey) -> Result<(), Error> {
        self.check_n(key, 1)
    }

    /// Spends `cost` units of every limit. If one limit denies, none is charged. A cost of zero is always admitted.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    #[inline]
    pub fn check_n(&self, key: impl AsKey, cost: u64) -> Result<(), Error> {
        let key = key.as_key()?;
        let shared = &*self.shared;
        match shared.fast_path_bucket() {
            Some(bucket) => shared.check_bucket(&key, bucket, &shared.initial, cost),
            None => shared.check_slow_path(&key, cost),
        }
    }

    /// Resets a key: its quota is full again for every limit. Returns whether the key had any state.
    ///
    /// # Errors
    /// The key is too long.
    pub fn reset(&self, key: impl AsKey) -> Result<bool, Error> {
        let key = key.as_key()?;
        let limits = self.shared.active_limits();
        let erase = |limit: &ActiveLimit| self.shared.table.memory.erase(&key, &limit.identified);
        Ok(limits.list().iter().filter(|limit| erase(limit)).count() > 0)
    }

    /// The memory that the table uses, and how often it evicted keys. Limiters that
    /// [share a table](LimiterBuilder::share_table_with) report the same usage.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        self.shared.table.memory.usage()
    }

    /// Replaces all limits of this limiter and its clones. A limit with the same name and algorithm as a current one keeps its
    /// state. Any other limit starts empty. Limits that are no longer named are removed.
    ///
    /// Debt keeps its length in time: a key that had to wait a minute still has to, at any new rate. Counts of windows and
    /// logs stay counts and are read with the new window. A sliding counter with another window length continues with its
    /// estimate at that instant; this scans the whole table once.
    ///
    /// ```
    /// use tollgate::{Limiter, Limits, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::per_hour(2).build()?;
    /// limiter.check_n("alice", 2)?;
    /// limiter.replace(Limits::from_limit(TokenBucket::builder(Rate::per_hour(3))))?;
    /// assert_eq!(limiter.peek("bob")?.tightest().remaining, 3);
    /// assert!(limiter.check("alice").is_err(), "alice has used her quota of this hour");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Calls in progress finish with the old limits. After the first replacement every call takes a read lock; before it,
    /// calls take no lock.
    ///
    /// # Errors
    /// A limit is not valid. Then the current limits stay.
    pub fn replace(&self, limits: Limits) -> Result<(), InvalidLimiter> {
        let limits = limits.validate()?;
        let shared = &*self.shared;
        let mut current = shared
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let limits = ActiveLimits::from_limits(current.list(), limits, |_, _| {
            shared.table.allocate_limit_id()
        })?;
        // From here on callers wait for the lock, so that no call reads state with the old limits while it is converted.
        shared.is_replaced.store(true, Ordering::Release);
        for ActiveLimit {
            identified: new, ..
        } in limits.list()
        {
            let mut before = current.list().iter().map(|limit| &limit.identified);
            match before.find(|old| old.id == new.id) {
                // Eviction must stop using the old quota: by it, keys that are denied now would seem to have little debt.
                Some(old) => shared.table.memory.replace_limit(old, new),
                None => shared.table.memory.add_limit(new),
            }
        }
        let old = std::mem::replace(&mut *current, Arc::new(limits));
        let ids = |limits: &ActiveLimits| -> Vec<_> {
            limits.list().iter().map(|r| r.identified.id).collect()
        };
        let kept = ids(&current);
        for gone in ids(&old).into_iter().filter(|id| !kept.contains(id)) {
            shared.table.memory.remove_limit(gone);
        }
        Ok(())
    }
}

impl<C: Clock> LimiterInner<C> {
    pub(crate) fn new(
        table: Arc<LimitTable<C>>,
        limits: Vec<(LimitName, Limit)>,
        pause: JitteredSleeper,
        #[cfg(feature = "tokio")] lines: crate::until_ready::WaitQueues,
    ) -> Result<Self, InvalidLimiter> {
        let first = Arc::new(ActiveLimits::from_limits(&[], limits, |name, limit| {
            table.initial_limit_id(name, limit)
        })?);
        table.register_limits(first.list().iter().map(|limit| &limit.identified));
        Ok(Self {
            table,
            initial_bucket: first.single_bucket(),
            is_replaced: AtomicBool::new(false),
            current: RwLock::new(Arc::clone(&first)),
            initial: first,
            sleeper: pause,
            #[cfg(feature = "tokio")]
            wait_queues: lines,
        })
    }

    /// The single limit, if it is a token bucket and the limits were never replaced.
    #[inline]
    fn fast_path_bucket(&self) -> Option<&SingleBucket> {
        match &self.initial_bucket {
            Some(bucket) if !self.is_replaced.load(Ordering::Acquire) => Some(bucket),
            _ => None,
        }
    }

    #[inline]
    fn check_bucket(
        &self,
        key: &store::StoreKey<'_>,
        bucket: &SingleBucket,
        limits: &Arc<ActiveLimits>,
        cost: u64,
    ) -> Result<(), Error> {
        match self.table.memory.spend(key, bucket.id, &bucket.quota, cost) {
            Outcome::Allow | Outcome::Wait(_) => Ok(()),
            outcome => Err(self.bucket_denial(key, bucket, limits, cost, outcome)),
        }
    }

    #[inline(never)]
    fn check_slow_path(&self, key: &store::StoreKey<'_>, cost: u64) -> Result<(), Error> {
        let limits = self.active_limits();
        if let Some(bucket) = limits.single_bucket() {
            return self.check_bucket(key, &bucket, &limits, cost);
        }
        // `spend_all` does not return the status that a denial needs. A denial charged nothing, so it is safe to decide again.
        if let Some(buckets) = limits.buckets()
            && self
                .table
                .memory
                .spend_all(key, buckets, cost)?
                .is_admitted()
        {
            return Ok(());
        }
        match limits.list().len() {
            0..=2 => self.check_limits::<2>(&limits, key, cost),
            3..=4 => self.check_limits::<4>(&limits, key, cost),
            _ => self.check_limits::<MAX_LIMITS>(&limits, key, cost),
        }
    }

    #[cold]
    fn bucket_denial(
        &self,
        key: &store::StoreKey<'_>,
        bucket: &SingleBucket,
        limits: &Arc<ActiveLimits>,
        cost: u64,
        outcome: Outcome,
    ) -> Error {
        let quota = &bucket.quota;
        let status = match outcome {
            Outcome::Deny { retry_after } => status_when_denied(quota, cost, retry_after),
            // `Outcome::Never` does not depend on the state, so peek to get the status.
            _ => match self.decide(limits, key, 0, Op::Peek(0)) {
                Ok(admission) => admission.first_status(),
                Err(error) => return error,
            },
        };
        let name = limits.list().first().map(|limit| limit.name.clone());
        let name = name.unwrap_or(LimitName::literal(Limits::UNNAMED));
        Denial::new(name, cost, outcome, status).into()
    }

    /// The current limits.
    pub(crate) fn active_limits(&self) -> ActiveLimitsGuard<'_> {
        if self.is_replaced.load(Ordering::Acquire) {
            let current = self.current.read();
            ActiveLimitsGuard::Current(current.unwrap_or_else(PoisonError::into_inner))
        } else {
            ActiveLimitsGuard::Initial(&self.initial)
        }
    }
}

/// The status of a bucket that denied a cost. The fast path returns only `retry_after`. The time that the cost takes to
/// refill, minus `retry_after`, is the room that is left.
fn status_when_denied(quota: &TokenBucket, cost: u64, retry_after: Nanos) -> QuotaStatus {
    let (interval, block) = (quota.interval().as_nanos(), quota.block());
    // Divisions are the most expensive part of a denial. Most denials need none: the block is 1 and less than one unit is left.
    let blocks = if block == 1 {
        cost
    } else {
        cost.div_ceil(block)
    };
    let price = Nanos::from_nanos(blocks.saturating_mul(interval));
    let room = price.saturating_sub(retry_after).as_nanos();
    let units = if room < interval {
        0
    } else {
        room / interval.max(1)
    };
    QuotaStatus {
        limit: quota.limit(),
        remaining: units.saturating_mul(block),
        // In the overdraft `retry_after` exceeds the price, so the reset takes longer than a full refill.
        reset_after: quota
            .refill_time()
            .saturating_add(retry_after)
            .saturating_sub(price),
    }
}

/// The current limits, with the read lock if they were replaced.
pub(crate) enum ActiveLimitsGuard<'a> {
    Initial(&'a Arc<ActiveLimits>),
    Current(RwLockReadGuard<'a, Arc<ActiveLimits>>),
}

impl Deref for ActiveLimitsGuard<'_> {
    type Target = Arc<ActiveLimits>;

    fn deref(&self) -> &Arc<ActiveLimits> {
        match self {
            Self::Initial(limits) => limits,
            Self::Current(limits) => limits,
        }
    }
}

impl<C> Clone for Limiter<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<C> fmt::Debug for Limiter<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let current = self.shared.current.read();
        let current = current.unwrap_or_else(PoisonError::into_inner);
        let names = current.list().iter().map(|limit| &limit.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
