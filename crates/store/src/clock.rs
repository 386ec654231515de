//! What time it is: the machine's clock, and one that tests move by hand.
//!
//! The only file that reads the machine's time. Must not know: what the time is used for.
#![allow(
    clippy::disallowed_types,
    reason = "this is the clock that everything else is handed"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Instant, SystemTime};

use tollgate_core::{Nanos, Timestamp};

/// Says what time it is. Handed to whatever decides, so that tests can move it.
pub trait Clock: Send + Sync {
    /// The present, in nanoseconds since 1970.
    fn now(&self) -> Timestamp;
}

impl<C: Clock + ?Sized> Clock for Arc<C> {
    fn now(&self) -> Timestamp {
        (**self).now()
    }
}

/// Wall time that never goes back: the machine's wall clock is read once, and from then on only the monotonic
/// clock is. A correction of the wall clock while the process runs is not followed.
#[derive(Clone, Copy, Debug)]
pub struct SystemClock {
    /// Wall time at the anchor.
    wall: Timestamp,
    anchor: Instant,
}

impl SystemClock {
    /// Anchors the clock at the machine's present wall time. A machine that believes it is before 1970 starts there.
    #[must_use]
    pub fn new() -> Self {
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        Self {
            wall: Timestamp::EPOCH.after(since_1970.unwrap_or_default().into()),
            anchor: Instant::now(),
        }
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        self.wall.after(self.anchor.elapsed().into())
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

    /// Moves the clock on by `span`.
    pub fn advance(&self, span: Nanos) {
        self.0.fetch_add(span.as_nanos(), Ordering::SeqCst);
    }

    /// Puts the clock to `now`, which may lie in its past.
    pub fn set(&self, now: Timestamp) {
        self.0.store(now.as_nanos(), Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_nanos(self.0.load(Ordering::SeqCst))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_tells_wall_time_and_never_goes_back() {
        let clock = SystemClock::new();
        let start = clock.now();
        let year_2020 = Timestamp::from_secs(1_577_836_800);
        assert!(start > year_2020, "{start:?}");
        let mut last = start;
        for _ in 0..10_000 {
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }
}
