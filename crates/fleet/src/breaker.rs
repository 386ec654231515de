//! Whether the store is asked at all: a small machine that everybody can see.
//!
//! Closed, it is asked. After a few failures in a row, or many among the calls of a second, the breaker opens and nobody
//! asks: decisions do without the store instead of waiting for it one after another. Whoever tends the link probes the
//! store meanwhile; no request is ever used for that. The first probe that succeeds closes it again, but not within the
//! first second, so that a store that is just too slow does not make it flap. Must not know: what is asked, clocks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

/// So many failures in a row open it.
const MAX_CONSECUTIVE_FAILURES: u32 = 5;
/// So many failures among the calls of one span open it, if they are at least half of them.
const MAX_WINDOW_FAILURES: u32 = 20;
/// The span over which calls are looked at, and the least time that it stays open.
const WINDOW: Nanos = Nanos::SECOND;
/// It is closed.
const CLOSED: u64 = u64::MAX;

/// What state the breaker is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum BreakerState {
    /// The store is asked.
    Closed,
    /// The store is not asked, since then.
    Open(Timestamp),
}

/// Decides whether the store is asked.
#[derive(Debug)]
pub struct Breaker {
    /// When it opened, in nanoseconds; [`NEVER`] while it is closed.
    opened_at: AtomicU64,
    consecutive_failures: AtomicU32,
    /// When the span began that calls are counted in.
    window_start: AtomicU64,
    calls: AtomicU32,
    failures: AtomicU32,
    /// How often it has opened.
    openings: AtomicU64,
}

impl Breaker {
    /// A closed one.
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

    /// What state it is in.
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

    /// How often it has opened so far.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// A call was answered.
    pub fn record_success(&self, now: Timestamp) {
        // Healthy calls share one cache line that nobody writes to, except for the count of the span.
        if self.consecutive_failures.load(Ordering::Relaxed) != 0 {
            self.consecutive_failures.store(0, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.roll_window(now);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A call failed. Answers whether this opened the breaker.
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

    /// Opens it, whatever was counted. Answers whether it was closed.
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

    /// A probe was answered. Answers whether this closed the breaker.
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

    /// Begins another span if this one is over. Two threads may both begin one; then a few calls are not counted.
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
    fn a_few_failures_in_a_row_open_it_and_fewer_do_not() {
        let breaker = Breaker::new();
        for _ in 0..100 {
            for n in 1..MAX_CONSECUTIVE_FAILURES {
                assert!(!breaker.record_failure(at(0)) || n == 0);
            }
            breaker.record_success(at(2_000));
            // Another span, so that only those in a row count.
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
    fn a_store_that_fails_every_other_call_is_given_up_on() {
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
    fn failures_that_are_few_among_many_do_not_open_it() {
        let breaker = Breaker::new();
        for _ in 0..1_000 {
            assert!(!breaker.record_failure(at(0)));
            for _ in 0..3 {
                breaker.record_success(at(0));
            }
        }
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let breaker = Breaker::new();
        for second in 0..1_000 {
            assert!(!breaker.record_failure(at(second * 1_000)));
            breaker.record_success(at(second * 1_000));
        }
    }

    /// A store that answers probes and nothing else would close and open it for ever.
    #[test]
    fn it_closes_when_a_probe_succeeds_but_not_within_its_first_second() {
        let breaker = Breaker::new();
        assert!(breaker.open(at(0)) && !breaker.open(at(1)));
        assert!(!breaker.record_probe(at(999)));
        assert!(!breaker.is_closed());
        assert!(breaker.record_probe(at(1_000)));
        assert!(breaker.is_closed() && !breaker.record_probe(at(1_001)));
        assert!(
            !breaker.record_failure(at(1_002)),
            "what was counted before is forgotten"
        );
    }

    #[test]
    fn answers_that_come_late_do_not_close_it() {
        let breaker = Breaker::new();
        breaker.open(at(0));
        breaker.record_success(at(5_000));
        assert!(!breaker.is_closed());
    }
}
