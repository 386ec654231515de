//! The clocks: `SystemClock` reads the machine's time, `ManualClock` is moved by tests.
//!
//! Must not know: what the time is used for.

mod system;

pub use system::SystemClock;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

/// Source of the current time. Every component that decides gets a `Clock`, so that tests can move the time.
pub trait Clock: Send + Sync {
    /// The current time, in nanoseconds since 1970.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// A clock that stands still until a test moves it.
///
/// ```
/// use tollgate_core::{Nanos, Timestamp};
/// use tollgate_store::{Clock, ManualClock};
///
/// let clock = ManualClock::at(Timestamp::from_secs(1_000));
/// clock.advance(Nanos::from_secs(5));
/// assert_eq!(clock.now(), Timestamp::from_secs(1_005));
/// ```
#[derive(Debug)]
pub struct ManualClock(AtomicU64);

impl ManualClock {
    /// A clock that stands at `now`.
    #[must_use]
    pub const fn at(now: Timestamp) -> Self {
        Self(AtomicU64::new(now.as_nanos()))
    }

    /// Advances the clock by `span`.
    pub fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.as_nanos(), Ordering::SeqCst);
    }

    /// Sets the clock to `now`, which may be earlier than its present time.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }
}
