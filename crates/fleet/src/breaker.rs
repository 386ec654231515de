//! The circuit breaker of one store partition.
//!
//! While it is closed, the store is asked. Several failures in a row, or many failures within a second, open it. While
//! it is open, decisions use the fallback instead of waiting for timeouts one by one. A background task probes the
//! store; requests are never used as probes. The first successful probe closes the breaker, but not within its first
//! second, so that a slow store does not make it flap. Must not know: what is asked, clocks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

/// This many failures in a row open the breaker.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;
/// This many failures within one window open the breaker, if they are at least half of its calls.
const MAX_WINDOW_FAILURES: u32 = 20;
/// The window in which calls are counted, and the minimum time that the breaker stays open.
const WINDOW: Nanos = Nanos::SECOND;
/// The value of `opened_at` while the breaker is closed.
const CLOSED: u64 = u64::MAX;

/// The state of a breaker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// The store is asked.
    Closed,
    /// The store is not asked, since this time.
    Open(Timestamp),
}

/// Decides whether the store is asked.
#[derive(Debug)]
pub struct Breaker {
    /// When the breaker opened, in nanoseconds; [`CLOSED`] while it is closed.
    opened_at: AtomicU64,
    consecutive_failures: AtomicU32,
    /// When the current window started.
    window_start: AtomicU64,
    calls: AtomicU32,
    failures: AtomicU32,
    /// How often the breaker has opened.
    openings: AtomicU64,
}

impl Breaker {
    /// A closed breaker.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            opened_at: AtomicU64::new(CLOSED),
            consecutive_failures: AtomicU32::new(0),
            window_start: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            openings: AtomicU64::new(0),
        }
    }

    /// The current state.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match self.opened_at.load(Ordering::Acquire) {
            CLOSED => BreakerState::Closed,
            nanos => BreakerState::Open(Timestamp::from_nanos(nanos)),
        }
    }

    /// Whether the store may be asked.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.opened_at.load(Ordering::Acquire) == CLOSED
    }

    /// How often the breaker has opened.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// Records a successful call.
    pub fn record_success(&self, now: Timestamp) {
        // Without recent failures a success only reads shared memory, so that threads do not contend for the cache
        // line.
        if self.consecutive_failures.load(Ordering::Relaxed) != 0 {
            self.consecutive_failures.store(0, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.roll_window(now);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Records a failed call. Returns whether it opened the breaker.
    pub fn record_failure(&self, now: Timestamp) -> bool {
        self.roll_window(now);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let in_a_row = self
            .consecutive_failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let calls = self.calls.load(Ordering::Relaxed);
        let are_many = failures >= MAX_WINDOW_FAILURES && failures >= calls / 2;
        (in_a_row >= MAX_CONSECUTIVE_FAILURES || are_many) && self.open(now)
    }

    /// Opens the breaker, regardless of its counts. Returns whether it was closed.
    pub fn open(&self, now: Timestamp) -> bool {
        let opened = now.as_nanos().min(CLOSED - 1);
        let swapped =
            self.opened_at
                .compare_exchange(CLOSED, opened, Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_ok() {
            self.openings.fetch_add(1, Ordering::Relaxed);
        }
        swapped.is_ok()
    }

    /// Records a successful probe. Returns whether it closed the breaker.
    pub fn record_probe(&self, now: Timestamp) -> bool {
        let opened = self.opened_at.load(Ordering::Acquire);
        if opened == CLOSED || now.since(Timestamp::from_nanos(opened)) < WINDOW {
            return false;
        }
        self.consecutive_failures.store(0, Ordering::Relaxed);
        self.start_window(now);
        self.opened_at
            .compare_exchange(opened, CLOSED, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Starts a new window if the current one is over. If two threads do so at once, a few calls are not counted.
    fn roll_window(&self, now: Timestamp) {
        let begun = Timestamp::from_nanos(self.window_start.load(Ordering::Relaxed));
        if now.since(begun) >= WINDOW {
            self.start_window(now);
        }
    }

    fn start_window(&self, now: Timestamp) {
        self.window_start.store(now.as_nanos(), Ordering::Relaxed);
        self.calls.store(0, Ordering::Relaxed);
        self.failures.store(0, Ordering::Relaxed);
    }
}

impl Default for Breaker {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(millis: u64) -> Timestamp {
        Timestamp::from_nanos(1_700_000_000_000_000_000 + millis * 1_000_000)
    }

    #[test]
    fn five_failures_in_a_row_open_the_breaker_and_fewer_do_not() {
        let breaker = Breaker::new();
        for _ in 0..100 {
            for n in 1..MAX_CONSECUTIVE_FAILURES {
                assert!(!breaker.record_failure(at(0)) || n == 0);
            }
            breaker.record_success(at(2_000));
            // A new window, so that only consecutive failures count.
            breaker.start_window(at(0));
        }
        assert!(breaker.is_closed());
        let opened = (0..MAX_CONSECUTIVE_FAILURES)
            .filter(|_| breaker.record_failure(at(0)))
            .count();
        assert_eq!(opened, 1);
        assert_eq!(breaker.state(), BreakerState::Open(at(0)));
        assert_eq!(breaker.openings(), 1);
    }

    #[test]
    fn failures_of_every_other_call_open_the_breaker() {
        let breaker = Breaker::new();
        let mut failures = 0;
        while breaker.is_closed() {
            breaker.record_failure(at(0));
            breaker.record_success(at(0));
            failures += 1;
            assert!(failures <= MAX_WINDOW_FAILURES);
        }
        assert_eq!(failures, MAX_WINDOW_FAILURES);
    }

    #[test]
    fn few_failures_among_many_calls_do_not_open_the_breaker() {
        let breaker = Breaker::new();
        for _ in 0..1_000 {
            assert!(!breaker.record_failure(at(0)));
            for _ in 0..3 {
                breaker.record_success(at(0));
            }
        }
    }

    #[test]
    fn failures_of_earlier_windows_do_not_count() {
        let breaker = Breaker::new();
        for second in 0..1_000 {
            assert!(!breaker.record_failure(at(second * 1_000)));
            breaker.record_success(at(second * 1_000));
        }
    }

    /// Otherwise a store that only answers probes would make the breaker flap.
    #[test]
    fn a_successful_probe_closes_the_breaker_but_not_within_its_first_second() {
        let breaker = Breaker::new();
        assert!(breaker.open(at(0)) && !breaker.open(at(1)));
        assert!(!breaker.record_probe(at(999)));
        assert!(!breaker.is_closed());
        assert!(breaker.record_probe(at(1_000)));
        assert!(breaker.is_closed() && !breaker.record_probe(at(1_001)));
        assert!(
            !breaker.record_failure(at(1_002)),
            "earlier failures no longer count"
        );
    }

    #[test]
    fn late_replies_do_not_close_the_breaker() {
        let breaker = Breaker::new();
        breaker.open(at(0));
        breaker.record_success(at(5_000));
        assert!(!breaker.is_closed());
    }
}
