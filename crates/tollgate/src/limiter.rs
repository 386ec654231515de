//! The limiter: its limits, its table, and the plain yes or no.
//!
//! The verbs that do more are in files of their own. Must not know: how waiting is done, what keys mean.

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

/// Decides how much each key may do. Cheap to clone; clones are the same limiter.
///
/// ```
/// use tollgate::Limiter;
///
/// let limiter = Limiter::per_second(10).burst(20).build()?;
/// limiter.check("user:42")?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// The type parameter is the clock. It is the machine's, and need not be written, unless a test
/// [hands one in](Builder::clock).
pub struct Limiter<C = SystemClock> {
    pub(crate) shared: Arc<LimiterInner<C>>,
}

/// What clones have in common.
pub(crate) struct LimiterInner<C> {
    pub(crate) table: Arc<LimitTable<C>>,
    /// The limits it was built with. Read without a lock for as long as nobody replaces them.
    initial: Arc<ActiveLimits>,
    /// The only one of them, if it is a token bucket.
    initial_bucket: Option<SingleBucket>,
    is_replaced: AtomicBool,
    current: RwLock<Arc<ActiveLimits>>,
    pub(crate) sleeper: JitteredSleeper,
    #[cfg(feature = "tokio")]
    pub(crate) wait_queues: crate::until_ready::WaitQueues,
}

impl Limiter {
    /// So many a second, and at first as many at once.
    pub fn per_second(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_second(units))
    }

    /// So many a minute, and at first as many at once.
    pub fn per_minute(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_minute(units))
    }

    /// So many an hour, and at first as many at once.
    pub fn per_hour(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_hour(units))
    }

    /// So many in 24 hours, and at first as many at once.
    pub fn per_day(units: u64) -> LimiterBuilder<TokenBucketLimit> {
        Self::from_rate(Rate::per_day(units))
    }

    /// Any rate, as a token bucket.
    pub fn from_rate(rate: Rate) -> LimiterBuilder<TokenBucketLimit> {
        LimiterBuilder::new(TokenBucketLimit {
            name: LimitName::literal(Limits::UNNAMED),
            bucket: TokenBucket::builder(rate),
        })
    }

    /// A limiter of several limits, or of other algorithms than the token bucket.
    ///
    /// ```
    /// use tollgate::{Calendar, FixedWindow, Limiter, Rate, TokenBucket, UtcOffset, Window};
    ///
    /// let limiter = Limiter::builder()
    ///     .limit("per-second", TokenBucket::at(Rate::per_second(10)).burst(20))
    ///     .limit("per-month", FixedWindow::of(1_000_000, Window::Calendar(Calendar::Month, UtcOffset::UTC)))
    ///     .build()?;
    /// limiter.check("user:42")?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn builder() -> LimiterBuilder<Limits> {
        LimiterBuilder::new(Limits::new())
    }
}

impl<C: Clock> Limiter<C> {
    /// Spends one unit of every limit, or nothing of any: yes or no.
    ///
    /// Yes means now. A queue ([`LeakyBucket::queue`](crate::LeakyBucket::queue)) that would make the caller wait
    /// counts as no here; [`spend`](Self::spend), [`wait`](Self::wait) and `until_ready` take the place in it.
    ///
    /// # Errors
    /// A limit denies, or the key is too long.
    #[inline]
    pub fn check(&self, key: impl AsKey) -> Result<(), Error> {
        self.check_n(key, 1)
    }

    /// Spends `cost` units of every limit, or nothing of any. A cost of zero is always admitted.
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

    /// Forgets what a key has used of every limit. Answers whether there was anything.
    ///
    /// # Errors
    /// The key is too long.
    pub fn reset(&self, key: impl AsKey) -> Result<bool, Error> {
        let key = key.as_key()?;
        let rules = self.shared.active_limits();
        let erase = |rule: &ActiveLimit| self.shared.table.memory.erase(&key, &rule.identified);
        Ok(rules.list().iter().filter(|rule| erase(rule)).count() > 0)
    }

    /// What the table takes, and what it has had to do for want of room. Limiters
    /// [beside](Builder::beside) each other have one table.
    #[must_use]
    pub fn usage(&self) -> StoreUsage {
        self.shared.table.memory.usage()
    }

    /// Replaces all limits, at once and for everyone who has this limiter. A limit with the name and the algorithm of
    /// one in force goes on with its state; others start afresh; those that are not named any more are gone.
    ///
    /// Debt keeps its length in time: a key that had to wait a minute still has to, whatever the new rate. Counts of
    /// windows and logs stay counts, and are read under the new window. A sliding counter whose window gets another length
    /// goes on with what it estimates at that instant, which looks at the whole table once.
    ///
    /// ```
    /// use tollgate::{Limiter, Limits, Rate, TokenBucket};
    ///
    /// let limiter = Limiter::per_hour(2).build()?;
    /// limiter.check_n("alice", 2)?;
    /// limiter.replace(Limits::of(TokenBucket::at(Rate::per_hour(3))))?;
    /// assert_eq!(limiter.peek("bob")?.tightest().remaining, 3);
    /// assert!(limiter.check("alice").is_err(), "she has used her hour");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// Calls under way finish under the old limits. From the first replacement on, every call takes a read lock that it
    /// does not take before.
    ///
    /// # Errors
    /// The limits cannot be honoured; then those in force stay.
    pub fn replace(&self, limits: Limits) -> Result<(), InvalidLimiter> {
        let limits = limits.validate()?;
        let shared = &*self.shared;
        let mut later = shared
            .current
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        let rules =
            ActiveLimits::from_limits(later.list(), limits, |_| shared.table.allocate_limit_id())?;
        // From here on callers wait for the lock, so that nobody reads by the old limits what is carried over.
        shared.is_replaced.store(true, Ordering::Release);
        for ActiveLimit {
            identified: new, ..
        } in rules.list()
        {
            let mut before = later.list().iter().map(|rule| &rule.identified);
            match before.find(|old| old.id == new.id) {
                // The old quota must not count any more: by it, keys that are denied now would seem to be in little debt.
                Some(old) => shared.table.memory.replace_limit(old, new),
                None => shared.table.memory.add_limit(new),
            }
        }
        let old = std::mem::replace(&mut *later, Arc::new(rules));
        let ids = |rules: &ActiveLimits| -> Vec<_> {
            rules.list().iter().map(|r| r.identified.id).collect()
        };
        let kept = ids(&later);
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
        let first = Arc::new(ActiveLimits::from_limits(&[], limits, |_| {
            table.allocate_limit_id()
        })?);
        table.register_limits(first.list().iter().map(|rule| &rule.identified));
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

    /// The only limit, if it is a token bucket that nobody has replaced.
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
        rules: &Arc<ActiveLimits>,
        cost: u64,
    ) -> Result<(), Error> {
        match self.table.memory.spend(key, bucket.id, &bucket.quota, cost) {
            Outcome::Allow | Outcome::Wait(_) => Ok(()),
            outcome => Err(self.bucket_denial(key, bucket, rules, cost, outcome)),
        }
    }

    #[inline(never)]
    fn check_slow_path(&self, key: &store::StoreKey<'_>, cost: u64) -> Result<(), Error> {
        let rules = self.active_limits();
        if let Some(bucket) = rules.single_bucket() {
            return self.check_bucket(key, &bucket, &rules, cost);
        }
        // A denial by the short way says too little. It charged nothing, so asking again in full is the same question.
        if let Some(buckets) = rules.buckets()
            && self
                .table
                .memory
                .spend_all(key, buckets, cost)?
                .is_admitted()
        {
            return Ok(());
        }
        match rules.list().len() {
            0..=2 => self.check_limits::<2>(&rules, key, cost),
            3..=4 => self.check_limits::<4>(&rules, key, cost),
            _ => self.check_limits::<MAX_LIMITS>(&rules, key, cost),
        }
    }

    #[cold]
    fn bucket_denial(
        &self,
        key: &store::StoreKey<'_>,
        bucket: &SingleBucket,
        rules: &Arc<ActiveLimits>,
        cost: u64,
        outcome: Outcome,
    ) -> Error {
        let quota = &bucket.quota;
        let status = match outcome {
            Outcome::Deny { retry_after } => status_when_denied(quota, cost, retry_after),
            // A cost that is never admitted says nothing about the state: look.
            _ => match self.decide(rules, key, 0, Op::Peek(0)) {
                Ok(allowed) => allowed.first_status(),
                Err(error) => return error,
            },
        };
        let name = rules.list().first().map(|rule| rule.name.clone());
        let name = name.unwrap_or(LimitName::literal(Limits::UNNAMED));
        Denial::new(name, cost, outcome, status).into()
    }

    /// The limits in force.
    pub(crate) fn active_limits(&self) -> ActiveLimitsGuard<'_> {
        if self.is_replaced.load(Ordering::Acquire) {
            let later = self.current.read();
            ActiveLimitsGuard::Current(later.unwrap_or_else(PoisonError::into_inner))
        } else {
            ActiveLimitsGuard::Initial(&self.initial)
        }
    }
}

/// Where a bucket stands that denied a cost. The short way answers only when to come back, and all else follows from that:
/// the price of the cost, less the time it is short by, is the room that there is.
fn status_when_denied(quota: &TokenBucket, cost: u64, retry_after: Nanos) -> QuotaStatus {
    let (interval, block) = (quota.interval().as_nanos(), quota.block());
    // Divisions are the dearest part of a denial, and most denials need none: blocks of one, and not even one left.
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
        // In the overdraft the bucket is short by more than the price, and the debt above its capacity.
        reset_after: quota
            .refill_time()
            .saturating_add(retry_after)
            .saturating_sub(price),
    }
}

/// The limits in force, and the lock that keeps them so where one is needed.
pub(crate) enum ActiveLimitsGuard<'a> {
    Initial(&'a Arc<ActiveLimits>),
    Current(RwLockReadGuard<'a, Arc<ActiveLimits>>),
}

impl Deref for ActiveLimitsGuard<'_> {
    type Target = Arc<ActiveLimits>;

    fn deref(&self) -> &Arc<ActiveLimits> {
        match self {
            Self::Initial(rules) => rules,
            Self::Current(rules) => rules,
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
        let later = self.shared.current.read();
        let later = later.unwrap_or_else(PoisonError::into_inner);
        let names = later.list().iter().map(|rule| &rule.name);
        f.debug_tuple("Limiter")
            .field(&names.collect::<Vec<_>>())
            .finish()
    }
}
