//! What each limit has decided so far, in numbers that only grow.
//!
//! Every thread adds to a line of its own where there are enough of them, so that counting does not make cores wait for
//! each other; reading adds the lines up. Must not know: what is done with the numbers.

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::thread;

/// No machine needs more lines than this for a limit: beyond it, threads share.
const MOST_LINES: usize = 16;

/// What can be counted of a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Allowed,
    Denied,
    WouldDeny,
    Waited,
    NearLimit,
    Error,
    Overflow,
}

/// What a limit has decided since the process began, whatever its quota was meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counted {
    /// Requests that it admitted and that were admitted.
    pub allowed: u64,
    /// Requests that it refused.
    pub denied: u64,
    /// Requests that it would have refused, had it been enforced.
    pub would_deny: u64,
    /// Requests that it made wait, among those it admitted.
    pub waited: u64,
    /// Requests that it admitted and that left no more than a fifth of it.
    pub near_limit: u64,
    /// Requests on which the store did not answer.
    pub errors: u64,
    /// Requests that were decided by the store's overflow, which may deny too much.
    pub overflow: u64,
}

/// The counters of one limit.
#[derive(Debug)]
pub(crate) struct Counters {
    lines: Box<[Line]>,
}

/// One cache line, written by few threads.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line {
    allowed: AtomicU64,
    denied: AtomicU64,
    would_deny: AtomicU64,
    waited: AtomicU64,
    near_limit: AtomicU64,
    errors: AtomicU64,
    overflow: AtomicU64,
}

impl Counters {
    /// With one line for each core, within bounds.
    pub(crate) fn new() -> Self {
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let lines = cores.next_power_of_two().min(MOST_LINES);
        Self {
            lines: (0..lines).map(|_| Line::default()).collect(),
        }
    }

    pub(crate) fn count(&self, event: Event) {
        // The number of lines is a power of two.
        let mask = self.lines.len().wrapping_sub(1);
        let Some(line) = self.lines.get(own_index() & mask) else {
            return;
        };
        let counter = match event {
            Event::Allowed => &line.allowed,
            Event::Denied => &line.denied,
            Event::WouldDeny => &line.would_deny,
            Event::Waited => &line.waited,
            Event::NearLimit => &line.near_limit,
            Event::Error => &line.errors,
            Event::Overflow => &line.overflow,
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> Counted {
        let mut sum = Counted::default();
        let add = |sum: &mut u64, counter: &AtomicU64| {
            *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
        };
        for line in &self.lines {
            add(&mut sum.allowed, &line.allowed);
            add(&mut sum.denied, &line.denied);
            add(&mut sum.would_deny, &line.would_deny);
            add(&mut sum.waited, &line.waited);
            add(&mut sum.near_limit, &line.near_limit);
            add(&mut sum.errors, &line.errors);
            add(&mut sum.overflow, &line.overflow);
        }
        sum
    }
}

/// A number that this thread keeps; threads that begin one after another have different ones.
pub(crate) fn own_index() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static OWN: Cell<usize> = const { Cell::new(usize::MAX) };
    }
    OWN.with(|own| {
        if own.get() == usize::MAX {
            own.set(NEXT.fetch_add(1, Ordering::Relaxed) & (usize::MAX >> 1));
        }
        own.get()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_many_threads_count_adds_up() {
        let counters = Counters::new();
        thread::scope(|scope| {
            for _ in 0..40 {
                scope.spawn(|| {
                    for _ in 0..100 {
                        counters.count(Event::Allowed);
                        counters.count(Event::Overflow);
                    }
                    counters.count(Event::Denied);
                });
            }
        });
        let expected = Counted {
            allowed: 4_000,
            overflow: 4_000,
            denied: 40,
            ..Counted::default()
        };
        assert_eq!(counters.read(), expected);
    }

    #[test]
    fn a_line_of_counters_is_a_cache_line() {
        assert_eq!((size_of::<Line>(), align_of::<Line>()), (64, 64));
    }
}
