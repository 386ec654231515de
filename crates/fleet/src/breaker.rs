//! Whether the store is asked at all: a small machine that everybody can see.
//!
//! Closed, it is asked. After a few failures in a row, or many among the calls of a second, the breaker opens and nobody
//! asks: decisions do without the store instead of waiting for it one after another. Whoever tends the link probes the
//! store meanwhile; no request is ever used for that. The first probe that succeeds closes it again, but not within the
//! first second, so that a store that is just too slow does not make it flap. Must not know: what is asked, clocks.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

/// So many failures in a row open it.
const IN_A_ROW: u32 = 5;
/// So many failures among the calls of one span open it, if they are at least half of them.
const IN_A_SPAN: u32 = 20;
/// The span over which calls are looked at, and the least time that it stays open.
const SPAN: Nanos = Nanos::SECOND;
/// It is closed.
const NEVER: u64 = u64::MAX;

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
    opened: AtomicU64,
    in_a_row: AtomicU32,
    /// When the span began that calls are counted in.
    span: AtomicU64,
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
            opened: AtomicU64::new(NEVER),
            in_a_row: AtomicU32::new(0),
            span: AtomicU64::new(0),
            calls: AtomicU32::new(0),
            failures: AtomicU32::new(0),
            openings: AtomicU64::new(0),
        }
    }

    /// What state it is in.
    #[must_use]
    pub fn state(&self) -> BreakerState {
        match self.opened.load(Ordering::Acquire) {
            NEVER => BreakerState::Closed,
            nanos => BreakerState::Open(Timestamp::from_nanos(nanos)),
        }
    }

    /// Whether the store may be asked.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.opened.load(Ordering::Acquire) == NEVER
    }

    /// How often it has opened so far.
    #[must_use]
    pub fn openings(&self) -> u64 {
        self.openings.load(Ordering::Relaxed)
    }

    /// A call was answered.
    pub fn succeeded(&self, now: Timestamp) {
        // Healthy calls share one cache line that nobody writes to, except for the count of the span.
        if self.in_a_row.load(Ordering::Relaxed) != 0 {
            self.in_a_row.store(0, Ordering::Relaxed);
        }
        if self.failures.load(Ordering::Relaxed) != 0 {
            self.in_span(now);
            self.calls.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A call failed. Answers whether this opened the breaker.
    pub fn failed(&self, now: Timestamp) -> bool {
        self.in_span(now);
        self.calls.fetch_add(1, Ordering::Relaxed);
        let failures = self
            .failures
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let in_a_row = self
            .in_a_row
            .fetch_add(1, Ordering::Relaxed)
            .saturating_add(1);
        let calls = self.calls.load(Ordering::Relaxed);
        let are_many = failures >= IN_A_SPAN && failures >= calls / 2;
        (in_a_row >= IN_A_ROW || are_many) && self.open(now)
    }

    /// Opens it, whatever was counted. Answers whether it was closed.
    pub fn open(&self, now: Timestamp) -> bool {
        let opened = now.as_nanos().min(NEVER - 1);
        let swapped =
            self.opened
                .compare_exchange(NEVER, opened, Ordering::AcqRel, Ordering::Relaxed);
        if swapped.is_ok() {
            self.openings.fetch_add(1, Ordering::Relaxed);
        }
        swapped.is_ok()
    }

    /// A probe was answered. Answers whether this closed the breaker.
    pub fn probed(&self, now: Timestamp) -> bool {
        let opened = self.opened.load(Ordering::Acquire);
        if opened == NEVER || now.since(Timestamp::from_nanos(opened)) < SPAN {
            return false;
        }
        self.in_a_row.store(0, Ordering::Relaxed);
        self.restart(now);
        self.opened
            .compare_exchange(opened, NEVER, Ordering::AcqRel, Ordering::Relaxed)
            .is_ok()
    }

    /// Begins another span if this one is over. Two threads may both begin one; then a few calls are not counted.
    fn in_span(&self, now: Timestamp) {
        let begun = Timestamp::from_nanos(self.span.load(Ordering::Relaxed));
        if now.since(begun) >= SPAN {
            self.restart(now);
        }
    }

    fn restart(&self, now: Timestamp) {
        self.span.store(now.as_nanos(), Ordering::Relaxed);
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
            for n in 1..IN_A_ROW {
                assert!(!breaker.failed(at(0)) || n == 0);
            }
            breaker.succeeded(at(2_000));
            // Another span, so that only those in a row count.
            breaker.restart(at(0));
        }
        assert!(breaker.is_closed());
        let opened = (0..IN_A_ROW).filter(|_| breaker.failed(at(0))).count();
        assert_eq!(opened, 1);
        assert_eq!(breaker.state(), BreakerState::Open(at(0)));
        assert_eq!(breaker.openings(), 1);
    }

    #[test]
    fn a_store_that_fails_every_other_call_is_given_up_on() {
        let breaker = Breaker::new();
        let mut failures = 0;
        while breaker.is_closed() {
            breaker.failed(at(0));
            breaker.succeeded(at(0));
            failures += 1;
            assert!(failures <= IN_A_SPAN);
        }
        assert_eq!(failures, IN_A_SPAN);
    }

    #[test]
    fn failures_that_are_few_among_many_do_not_open_it() {
        let breaker = Breaker::new();
        for _ in 0..1_000 {
            assert!(!breaker.failed(at(0)));
            for _ in 0..3 {
                breaker.succeeded(at(0));
            }
        }
    }

    #[test]
    fn failures_of_long_ago_do_not_count() {
        let breaker = Breaker::new();
        for second in 0..1_000 {
            assert!(!breaker.failed(at(second * 1_000)));
            breaker.succeeded(at(second * 1_000));
        }
    }

    /// A store that answers probes and nothing else would close and open it for ever.
    #[test]
    fn it_closes_when_a_probe_succeeds_but_not_within_its_first_second() {
        let breaker = Breaker::new();
        assert!(breaker.open(at(0)) && !breaker.open(at(1)));
        assert!(!breaker.probed(at(999)));
        assert!(!breaker.is_closed());
        assert!(breaker.probed(at(1_000)));
        assert!(breaker.is_closed() && !breaker.probed(at(1_001)));
        assert!(
            !breaker.failed(at(1_002)),
            "what was counted before is forgotten"
        );
    }

    #[test]
    fn answers_that_come_late_do_not_close_it() {
        let breaker = Breaker::new();
        breaker.open(at(0));
        breaker.succeeded(at(5_000));
        assert!(!breaker.is_closed());
    }
}
