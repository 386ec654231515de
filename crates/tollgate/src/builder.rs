//! The builder of a limiter: its limits, then settings that have defaults.
//!
//! Must not know: how decisions are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{Clock, SnapshotError, SystemClock};

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;
use crate::limit_table::{DEFAULT_KEYS, LimitTable};
use crate::limiter::{Limiter, LimiterInner};
use crate::limits::{IntoLimit, Limits, TokenBucketLimit};
use crate::sleeper::{JitteredSleeper, Sleeper, ThreadSleeper};
use crate::snapshot::{RestoreError, RestoredTable};

/// Builds a [`Limiter`]. Created by [`Limiter::per_second`], [`Limiter::from_rate`] and so on, or by [`Limiter::builder`].
///
/// # Why `build` can fail
///
/// `build` refuses numbers that cannot be enforced exactly:
///
/// - 1 per day with a burst of 100,000 would take 270 years to refill.
/// - 700,000,000 per second is not a whole number of nanoseconds per unit.
/// - A table for 2^40 keys does not fit into memory.
///
/// Whether a rate is valid depends on the burst, so no type can rule invalid pairs out. Clamping would enforce another limit
/// than the requested one. A panic would end a process that reads its limits from a file. The error names the field, the
/// value and the nearest valid value.
#[must_use = "a builder does nothing until `build` is called"]
pub struct LimiterBuilder<L, C = SystemClock> {
    limits: L,
    table_source: TableSource<C>,
    keys: Option<usize>,
    sleeper: Box<dyn Sleeper>,
    jitter: Duration,
    #[cfg(feature = "tokio")]
    max_waiting: usize,
}

/// Where the limiter gets its table from.
enum TableSource<C> {
    /// A new table with this clock. `build` creates the clock, because calibrating the system clock takes time.
    New(Box<dyn FnOnce() -> C>),
    /// The table of another limiter.
    Shared(Arc<LimitTable<C>>),
}

impl<L> LimiterBuilder<L> {
    pub(crate) fn new(limits: L) -> Self {
        Self {
            limits,
            table_source: TableSource::New(Box::new(SystemClock::new)),
            keys: None,
            sleeper: Box::new(ThreadSleeper),
            jitter: Duration::ZERO,
            #[cfg(feature = "tokio")]
            max_waiting: crate::until_ready::DEFAULT_MAX_WAITING,
        }
    }
}

impl<C> LimiterBuilder<TokenBucketLimit, C> {
    /// The largest number of units admitted at once. Defaults to the units of the rate.
    pub fn burst(mut self, units: u64) -> Self {
        self.limits.bucket = self.limits.bucket.burst(units);
        self
    }

    /// How far [`charge`](Limiter::charge) may go into debt below an empty bucket. Defaults to zero.
    pub fn overdraft(mut self, units: u64) -> Self {
        self.limits.bucket = self.limits.bucket.overdraft(units);
        self
    }

    /// The name of the limit in denials. Defaults to [`Limits::UNNAMED`].
    pub fn name(mut self, name: impl Into<LimitName>) -> Self {
        self.limits.name = name.into();
        self
    }
}

impl<C> LimiterBuilder<Limits, C> {
    /// Adds a limit. All limits apply to every key. A call is charged on all of them or on none.
    pub fn limit(mut self, name: impl Into<LimitName>, limit: impl IntoLimit) -> Self {
        self.limits = self.limits.limit(name, limit);
        self
    }
}

impl<L, C> LimiterBuilder<L, C> {
    /// The number of keys that the table holds. Defaults to [`DEFAULT_KEYS`]. A key whose quota is full again needs no entry.
    /// The table never grows. The [crate documentation](crate) says how much memory it takes and what happens when it is full.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Uses another clock than the system clock, so that tests can control time.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tollgate::{Limiter, ManualClock, Nanos, Timestamp};
    ///
    /// let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    /// let limiter = Limiter::per_second(1).clock(Arc::clone(&clock)).build()?;
    /// assert!(limiter.check("alice").is_ok());
    /// clock.advance(Nanos::from_nanos(999_999_999));
    /// assert!(limiter.check("alice").is_err());
    /// clock.advance(Nanos::from_nanos(1));
    /// assert!(limiter.check("alice").is_ok());
    /// # Ok::<(), tollgate::InvalidLimiter>(())
    /// ```
    pub fn clock<D: Clock + 'static>(self, clock: D) -> LimiterBuilder<L, D> {
        self.with_table_source(TableSource::New(Box::new(move || clock)))
    }

    /// Uses the table and the clock of another limiter, so that [`check_all`](crate::check_all) can decide on both at once.
    /// Limits of different limiters never share state, even if they have the same name.
    pub fn share_table_with<D>(self, other: &Limiter<D>) -> LimiterBuilder<L, D> {
        self.with_table_source(TableSource::Shared(Arc::clone(&other.shared.table)))
    }

    /// Replaces [`std::thread::sleep`] in [`Limiter::wait`], so that tests need not sleep.
    pub fn sleeper(mut self, sleeper: impl Sleeper + 'static) -> Self {
        self.sleeper = Box::new(sleeper);
        self
    }

    /// Adds a random delay of at most this much to every wait, so that callers that were denied together do not retry
    /// together. Defaults to zero.
    pub fn jitter(mut self, max: Duration) -> Self {
        self.jitter = max;
        self
    }

    /// How many callers may wait in [`until_ready`](Limiter::until_ready) at the same time. Defaults to 65,536. Further
    /// callers get [`Error::TooManyWaiting`](crate::Error::TooManyWaiting) at once.
    #[cfg(feature = "tokio")]
    pub fn max_waiting(mut self, callers: usize) -> Self {
        self.max_waiting = callers;
        self
    }

    fn with_table_source<D>(self, home: TableSource<D>) -> LimiterBuilder<L, D> {
        LimiterBuilder {
            limits: self.limits,
            table_source: home,
            keys: self.keys,
            sleeper: self.sleeper,
            jitter: self.jitter,
            #[cfg(feature = "tokio")]
            max_waiting: self.max_waiting,
        }
    }
}

impl<L: Into<Limits>, C: Clock> LimiterBuilder<L, C> {
    /// Validates all settings and builds the limiter.
    ///
    /// # Errors
    /// A setting is not valid; see [why `build` can fail](Self#why-build-can-fail).
    pub fn build(self) -> Result<Limiter<C>, InvalidLimiter> {
        let limits = self.limits.into().validate()?;
        let table = match (self.table_source, self.keys) {
            (TableSource::New(clock), keys) => {
                let keys = keys.unwrap_or(DEFAULT_KEYS);
                Arc::new(LimitTable::with_capacity(keys, clock())?)
            }
            (TableSource::Shared(table), None) => table,
            (TableSource::Shared(_), Some(keys)) => {
                return Err(InvalidLimiter::SizeOfSharedTable { keys });
            }
        };
        let shared = LimiterInner::new(
            table,
            limits,
            JitteredSleeper::new(self.sleeper, self.jitter),
            #[cfg(feature = "tokio")]
            crate::until_ready::WaitQueues::new(self.max_waiting),
        )?;
        Ok(Limiter {
            shared: Arc::new(shared),
        })
    }

    /// Builds the limiter on a table that `read` restores for a number of keys and a clock. A limiter that shares a table reads
    /// nothing.
    pub(crate) fn build_with(
        mut self,
        read: impl FnOnce(usize, C) -> Result<RestoredTable<C>, SnapshotError>,
    ) -> Result<Limiter<C>, RestoreError> {
        if let TableSource::New(clock) = self.table_source {
            let keys = self.keys.take().unwrap_or(DEFAULT_KEYS);
            let table = LimitTable::restored(read(keys, clock())?);
            self.table_source = TableSource::Shared(Arc::new(table));
        }
        Ok(self.build()?)
    }
}

#[cfg(feature = "redis")]
impl<L: Into<Limits>> LimiterBuilder<L> {
    /// Keeps state in Redis or Valkey, so that many processes share one limit: see [`crate::redis`]. `jitter` and
    /// `max_waiting` keep their values; a [`sleeper`](Self::sleeper) is not used.
    pub fn with_redis(self, redis: &crate::redis::Redis) -> crate::redis::LimiterBuilder {
        let memory_only_setting = match (&self.table_source, self.keys) {
            (TableSource::Shared(_), _) => Some("share_table_with"),
            (TableSource::New(_), Some(_)) => Some("keys"),
            (TableSource::New(_), None) => None,
        };
        crate::redis::LimiterBuilder::new(
            redis,
            self.limits.into(),
            memory_only_setting,
            JitteredSleeper::new(self.sleeper, self.jitter),
            crate::until_ready::WaitQueues::new(self.max_waiting),
        )
    }
}

impl<L: fmt::Debug, C> fmt::Debug for LimiterBuilder<L, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Builder")
            .field("limits", &self.limits)
            .field("keys", &self.keys)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}
