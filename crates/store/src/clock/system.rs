//! The machine's clock: wall time that never goes back, read in a few nanoseconds.
//!
//! Between two readings of the operating system's clock, time is counted with the processor's tick counter if it is
//! steady. On other machines `quanta` falls back to the system's monotonic clock. About every half second one reader
//! recalibrates: it compares the two clocks and changes the pace so that the difference is gone at the next comparison.
//! Time is slewed, never set back. If it is far behind because the machine slept, it jumps ahead.
//!
//! The only file that reads the machine's time. Must not know: what the time is used for.
#![allow(
    clippy::disallowed_types,
    reason = "this is the clock that everything else is handed"
)]

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::{Instant, SystemTime};

use tollgate_core::Timestamp;

use super::Clock;

/// A pace is the number of nanoseconds per tick, in units of 2^-32.
const PACE_BITS: u32 = 32;
/// Duration of the first calibration.
const FIRST_CALIBRATION_NS: u64 = 2_000_000;
/// Time between two calibrations.
const CALIBRATE_EVERY_NS: u64 = 500_000_000;
/// A clock that is further behind than this jumps ahead instead of running faster.
const STEP_THRESHOLD_NS: u64 = 100_000_000;
/// The pace changes by at most one part in this many, so that time runs almost evenly.
const MAX_SLEW_DIVISOR: u64 = 1_024;

/// Wall time that never goes back. `new` reads the wall clock once. From then on the clock adds elapsed time, so it
/// does not follow later corrections of the wall clock.
pub struct SystemClock {
    counter: quanta::Clock,
    /// The operating system's monotonic time and the wall time, both at the moment of `new`.
    began: Instant,
    wall: u64,
    anchor: Anchor,
}

/// The shared calibration, guarded by a sequence lock. One reader at a time writes it while `version` is odd;
/// concurrent readers retry.
#[derive(Debug, Default)]
struct Anchor {
    version: AtomicU64,
    ticks: AtomicU64,
    time: AtomicU64,
    pace: AtomicU64,
    /// The average pace since the clock was made. Slewing changes the pace around it.
    even_pace: AtomicU64,
    /// The first reading of the counter.
    first_ticks: AtomicU64,
}

/// A consistent copy of an `Anchor`: at `ticks` it was `time`, and time runs at `pace`.
#[derive(Clone, Copy)]
struct Calibration {
    ticks: u64,
    time: u64,
    pace: u64,
}

impl Calibration {
    #[inline]
    fn time_at(self, ticks: u64) -> u64 {
        let gone = u128::from(ticks.saturating_sub(self.ticks)).wrapping_mul(u128::from(self.pace));
        self.time
            .saturating_add(u64::try_from(gone >> PACE_BITS).unwrap_or(u64::MAX))
    }
}

impl SystemClock {
    /// Starts at the machine's present wall time and calibrates the tick counter, which takes 2 ms. A wall clock before
    /// 1970 counts as 1970.
    #[must_use]
    pub fn new() -> Self {
        let counter = quanta::Clock::new();
        let since_1970 = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let wall = u64::try_from(since_1970.unwrap_or_default().as_nanos()).unwrap_or(u64::MAX);
        let (began, first) = (Instant::now(), counter.raw());
        let (ticks, elapsed) = loop {
            let elapsed = elapsed_ns(began);
            if elapsed >= FIRST_CALIBRATION_NS {
                break (counter.raw(), elapsed);
            }
            std::hint::spin_loop();
        };
        let pace = pace(elapsed, ticks.saturating_sub(first));
        let anchor = Anchor::default();
        anchor.first_ticks.store(first, Ordering::Relaxed);
        anchor.even_pace.store(pace, Ordering::Relaxed);
        anchor.put(Calibration {
            ticks,
            time: wall.saturating_add(elapsed),
            pace,
        });
        Self {
            counter,
            began,
            wall,
            anchor,
        }
    }

    /// Compares the tick counter with the operating system's clock, unless another thread is doing it.
    #[cold]
    fn recalibrate(&self) {
        let version = self.anchor.version.load(Ordering::Relaxed);
        let is_mine = version & 1 == 0
            && self
                .anchor
                .version
                .compare_exchange(version, version | 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !is_mine {
            return;
        }
        fence(Ordering::Release);
        let old = self.anchor.peek();
        let ticks = self.counter.raw();
        let elapsed = elapsed_ns(self.began);
        let total = ticks.saturating_sub(self.anchor.first_ticks.load(Ordering::Relaxed));
        let even = pace(elapsed, total);
        self.anchor.even_pace.store(even, Ordering::Relaxed);
        let next = slew(old.time_at(ticks), self.wall.saturating_add(elapsed), even);
        self.anchor.put(Calibration { ticks, ..next });
        self.anchor
            .version
            .store(version.wrapping_add(2), Ordering::Release);
    }
}

/// The next calibration when the tick counter shows `shown` and the operating system shows `real`.
fn slew(shown: u64, real: u64, even: u64) -> Calibration {
    let behind = real.saturating_sub(shown);
    let ahead = shown.saturating_sub(real);
    if behind > STEP_THRESHOLD_NS {
        return Calibration {
            ticks: 0,
            time: real,
            pace: even,
        };
    }
    // Spread the difference over the time until the next calibration, as a change of pace.
    let change = u128::from(behind.max(ahead)).wrapping_mul(u128::from(even))
        / u128::from(CALIBRATE_EVERY_NS);
    let change = u64::try_from(change)
        .unwrap_or(u64::MAX)
        .min(even / MAX_SLEW_DIVISOR);
    let pace = if behind > 0 {
        even.saturating_add(change)
    } else {
        even.saturating_sub(change)
    };
    Calibration {
        ticks: 0,
        time: shown,
        pace,
    }
}

/// Nanoseconds per tick in units of 2^-32.
fn pace(nanos: u64, ticks: u64) -> u64 {
    let pace = (u128::from(nanos) << PACE_BITS) / u128::from(ticks.max(1));
    u64::try_from(pace).unwrap_or(u64::MAX)
}

fn elapsed_ns(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

impl Anchor {
    #[inline]
    fn peek(&self) -> Calibration {
        Calibration {
            ticks: self.ticks.load(Ordering::Relaxed),
            time: self.time.load(Ordering::Relaxed),
            pace: self.pace.load(Ordering::Relaxed),
        }
    }

    fn put(&self, bearing: Calibration) {
        self.ticks.store(bearing.ticks, Ordering::Relaxed);
        self.time.store(bearing.time, Ordering::Relaxed);
        self.pace.store(bearing.pace, Ordering::Relaxed);
    }

    /// A calibration whose three values belong together.
    #[inline]
    fn read(&self) -> Calibration {
        loop {
            let before = self.version.load(Ordering::Acquire);
            let bearing = self.peek();
            fence(Ordering::Acquire);
            if before & 1 == 0 && self.version.load(Ordering::Relaxed) == before {
                return bearing;
            }
            std::hint::spin_loop();
        }
    }
}

impl Clock for SystemClock {
    #[inline]
    fn now(&self) -> Timestamp {
        // Read the counter first: with a calibration newer than the reading, `time_at` returns the calibration's time,
        // never less.
        let ticks = self.counter.raw();
        let bearing = self.anchor.read();
        let time = bearing.time_at(ticks);
        if time.saturating_sub(bearing.time) > CALIBRATE_EVERY_NS {
            self.recalibrate();
        }
        Timestamp::from_nanos(time)
    }
}

impl Default for SystemClock {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for SystemClock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SystemClock")
            .field("now", &self.now())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVEN: u64 = 1 << PACE_BITS;

    #[test]
    fn the_system_clock_tells_wall_time_and_never_goes_back() {
        let clock = SystemClock::new();
        let year_2020 = Timestamp::from_secs(1_577_836_800);
        let mut last = clock.now();
        assert!(last > year_2020, "{last:?}");
        for round in 0..100_000 {
            if round % 1_000 == 0 {
                clock.recalibrate();
            }
            let now = clock.now();
            assert!(now >= last);
            last = now;
        }
    }

    #[test]
    fn a_clock_that_is_ahead_runs_slower_and_is_not_set_back() {
        let bearing = slew(1_000_000_500, 1_000_000_000, EVEN);
        assert_eq!(bearing.time, 1_000_000_500);
        assert!(bearing.pace < EVEN);
        let after = bearing.time_at(CALIBRATE_EVERY_NS);
        assert!(
            after.abs_diff(1_000_000_000 + CALIBRATE_EVERY_NS) <= 1,
            "made up by the next comparison"
        );
    }

    #[test]
    fn a_clock_that_is_behind_runs_faster_and_after_a_sleep_jumps() {
        let bearing = slew(1_000_000_000, 1_000_000_500, EVEN);
        assert_eq!(bearing.time, 1_000_000_000);
        let after = bearing.time_at(CALIBRATE_EVERY_NS);
        assert!(after.abs_diff(1_000_000_500 + CALIBRATE_EVERY_NS) <= 1);
        let slept = slew(1_000_000_000, 9_000_000_000, EVEN);
        assert_eq!((slept.time, slept.pace), (9_000_000_000, EVEN));
    }

    #[test]
    fn the_pace_is_never_changed_by_much() {
        let far_ahead = slew(9_000_000_000, 1_000_000_000, EVEN);
        assert_eq!(far_ahead.pace, EVEN - EVEN / MAX_SLEW_DIVISOR);
    }
}
