//! Writing a limiter down: its limits, then everything that has a default.
//!
//! Must not know: how decisions are made.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::{Clock, SystemClock};

use crate::invalid::InvalidLimiter;
use crate::limit_name::LimitName;
use crate::limit_table::{DEFAULT_KEYS, LimitTable};
use crate::limiter::{Limiter, LimiterInner};
use crate::limits::{IntoLimit, Limits, TokenBucketLimit};
use crate::sleeper::{JitteredSleeper, Sleeper, ThreadSleeper};

/// A limiter before it is built. Made by [`Limiter::per_second`] and its siblings, or by [`Limiter::builder`].
///
/// # Why `build` can fail
///
/// Numbers that cannot be honoured exactly are refused, never bent: one a day with a burst of a hundred thousand would take
/// 270 years to refill, 700,000,000 a second cannot be told in whole nanoseconds, and a table for 2^40 keys does not fit.
/// Which pairs of numbers work depends on both, so no type of either can rule the rest out; clamping would enforce
/// another limit than the one that was asked for, and a panic would end a process that reads its limits from a file. The
/// error names the field, the value and the nearest one that works.
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

/// Where state is kept.
enum TableSource<C> {
    /// In a table of its own, on this clock. Made when the limiter is: the machine's takes a moment to measure.
    New(Box<dyn FnOnce() -> C>),
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
    /// The most admitted at once, after a pause. As much as the rate's number unless said otherwise.
    pub fn burst(mut self, units: u64) -> Self {
        self.limits.bucket = self.limits.bucket.burst(units);
        self
    }

    /// How far [`charge`](Limiter::charge) may go into debt beyond an empty bucket. Nothing unless said otherwise.
    pub fn overdraft(mut self, units: u64) -> Self {
        self.limits.bucket = self.limits.bucket.overdraft(units);
        self
    }

    /// What the limit is called in denials: [`Limits::UNNAMED`] unless said otherwise.
    pub fn name(mut self, name: impl Into<LimitName>) -> Self {
        self.limits.name = name.into();
        self
    }
}

impl<C> LimiterBuilder<Limits, C> {
    /// Adds a limit. All limits apply to every key, and a call is charged on all of them or on none.
    pub fn limit(mut self, name: impl Into<LimitName>, limit: impl IntoLimit) -> Self {
        self.limits = self.limits.limit(name, limit);
        self
    }
}

impl<L, C> LimiterBuilder<L, C> {
    /// How many keys are in use at the same time: [`DEFAULT_KEYS`] unless said otherwise. A key whose quota is full again
    /// is not in use. The table is made for so many and never grows; see the crate's documentation for what it takes
    /// and what happens beyond.
    pub fn keys(mut self, keys: usize) -> Self {
        self.keys = Some(keys);
        self
    }

    /// Decides by another clock than the machine's, so that tests can move time.
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

    /// Keeps state in the table of another limiter, by its clock, so that [`check_all`](crate::check_all) can decide on
    /// both at once. Limits of the same name stay apart.
    pub fn share_table_with<D>(self, other: &Limiter<D>) -> LimiterBuilder<L, D> {
        self.with_table_source(TableSource::Shared(Arc::clone(&other.shared.table)))
    }

    /// Waits by other means than [`std::thread::sleep`], so that tests need not.
    pub fn sleeper(mut self, sleeper: impl Sleeper + 'static) -> Self {
        self.sleeper = Box::new(sleeper);
        self
    }

    /// Lets everyone who waits come up to this much later, at random, so that those who were denied together do not come
    /// back together. None unless said otherwise.
    pub fn jitter(mut self, most: Duration) -> Self {
        self.jitter = most;
        self
    }

    /// How many may wait in [`until_ready`](Limiter::until_ready) at the same time: 65,536 unless said otherwise. The
    /// next one gets an error at once.
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
    /// Checks everything and makes the limiter.
    ///
    /// # Errors
    /// A number that cannot be honoured exactly, or a table that cannot be made; see [why](Self#why-build-can-fail).
    pub fn build(self) -> Result<Limiter<C>, InvalidLimiter> {
        let limits = self.limits.into().validate()?;
        let table = match (self.table_source, self.keys) {
            (TableSource::New(clock), keys) => Arc::new(LimitTable::with_capacity(
                keys.unwrap_or(DEFAULT_KEYS),
                clock(),
            )?),
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
}

#[cfg(feature = "redis")]
impl<L: Into<Limits>> LimiterBuilder<L> {
    /// Keeps state in Redis or Valkey, so that many processes have one limit: see [`crate::redis`]. The jitter and the
    /// most that may wait stay as they were chosen; a [`sleeper`](Self::sleeper) has nothing to do there.
    pub fn with_redis(self, redis: &crate::redis::Redis) -> crate::redis::LimiterBuilder {
        let misplaced = match (&self.table_source, self.keys) {
            (TableSource::Shared(_), _) => Some("beside"),
            (TableSource::New(_), Some(_)) => Some("keys"),
            (TableSource::New(_), None) => None,
        };
        crate::redis::LimiterBuilder::new(
            redis,
            self.limits.into(),
            misplaced,
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
