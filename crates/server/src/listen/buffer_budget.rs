//! One byte budget for everything that the process buffers for clients: bodies, messages and commands that are not complete, and
//! replies that are not read. All listeners share it, so that many connections within their own limits cannot exhaust memory.
//!
//! A buffer is reserved before it grows. What does not fit is refused at once; nobody waits. Must not know: protocols, sockets.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::counters::{ListenerCounters, increment};

/// A connection that buffers no more than this is not counted and never refused, so that small requests are served while large
/// ones hold the whole budget. `max_connections` bounds these bytes.
pub(crate) const UNCOUNTED_LEN: usize = 4 * 1_024;
/// The shortest time that a client gets to complete its request, when the budget is nearly used up.
const MIN_TIMEOUT: Duration = Duration::from_secs(1);
/// The log has a line about refusals at most this often.
const LOG_INTERVAL: Duration = Duration::from_secs(60);

/// The bytes that may be buffered for all connections together.
#[derive(Debug)]
pub struct BufferBudget {
    capacity: usize,
    used: AtomicUsize,
    /// Refusals since the last log line, and when that was.
    unlogged: AtomicU64,
    logged_at: Mutex<Option<Instant>>,
}

/// The budget has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BuffersFull;

/// How much of the budget a reservation may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BufferPriority {
    /// Three quarters.
    Normal,
    /// All of it: small requests of connections that have many at once.
    Small,
    /// Counted and never refused: operators, whose connections are few.
    Operator,
}

/// The bytes that one connection has reserved. They are released on drop.
#[derive(Debug)]
pub(crate) struct BufferReservation {
    budget: Arc<BufferBudget>,
    held: usize,
    /// Up to this length nothing is counted.
    uncounted_len: usize,
    priority: BufferPriority,
}

impl BufferBudget {
    /// The default capacity, in bytes.
    pub const DEFAULT_CAPACITY: usize = 64 << 20;

    /// A budget of this many bytes.
    #[must_use]
    pub const fn new(capacity: usize) -> Self {
        Self {
            capacity,
            used: AtomicUsize::new(0),
            unlogged: AtomicU64::new(0),
            logged_at: Mutex::new(None),
        }
    }

    /// The most bytes that may be reserved.
    #[must_use]
    pub const fn capacity(&self) -> usize {
        self.capacity
    }

    /// The bytes that are reserved now.
    #[must_use]
    pub fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// The time that a client gets to complete its request: all of `full` while at most half of the budget is used, then less
    /// and less. So slow clients hold the budget for a shorter time the fuller it is.
    pub(crate) fn timeout(&self, full: Duration) -> Duration {
        let capacity = self.capacity_for(BufferPriority::Normal);
        let half = capacity / 2;
        let free = capacity.saturating_sub(self.used());
        if free >= half {
            return full;
        }
        let scale = |value: usize| u32::try_from(value >> 10).unwrap_or(u32::MAX);
        let scaled = full.saturating_mul(scale(free)) / scale(half).max(1);
        scaled.max(MIN_TIMEOUT).min(full)
    }

    /// Counts a refusal, and logs it at most once a minute.
    pub(crate) fn record_refusal(&self, counters: &ListenerCounters) {
        increment(&counters.refused_buffers);
        increment(&self.unlogged);
        let now = Instant::now();
        let mut logged_at = self
            .logged_at
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if logged_at.is_none_or(|at| now.duration_since(at) >= LOG_INTERVAL) {
            *logged_at = Some(now);
            let refused = self.unlogged.swap(0, Ordering::Relaxed);
            tracing::warn!(
                refused,
                used_bytes = self.used(),
                max_buffered_bytes = self.capacity,
                "no room to buffer a request; large requests are refused, small ones are served"
            );
        }
    }

    const fn capacity_for(&self, priority: BufferPriority) -> usize {
        match priority {
            BufferPriority::Normal => self.capacity - self.capacity / 4,
            BufferPriority::Small => self.capacity,
            BufferPriority::Operator => usize::MAX,
        }
    }

    fn try_add(&self, bytes: usize, priority: BufferPriority) -> Result<(), BuffersFull> {
        if bytes == 0 {
            return Ok(());
        }
        let most = self.capacity_for(priority);
        let added = |used: usize| used.checked_add(bytes).filter(|sum| *sum <= most);
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        match self.used.fetch_update(success, failure, added) {
            Ok(_) => Ok(()),
            Err(_full) => Err(BuffersFull),
        }
    }

    fn release(&self, bytes: usize) {
        if bytes > 0 {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Default for BufferBudget {
    fn default() -> Self {
        Self::new(Self::DEFAULT_CAPACITY)
    }
}

impl BufferReservation {
    /// A reservation of no bytes. The first [`UNCOUNTED_LEN`] bytes are not counted.
    pub(crate) const fn new(budget: Arc<BufferBudget>, priority: BufferPriority) -> Self {
        Self {
            budget,
            held: 0,
            uncounted_len: UNCOUNTED_LEN,
            priority,
        }
    }

    /// The same with another length up to which nothing is counted.
    pub(crate) const fn with_uncounted_len(mut self, len: usize) -> Self {
        self.uncounted_len = len;
        self
    }

    /// The bytes that are reserved, counted or not.
    pub(crate) const fn held(&self) -> usize {
        self.held
    }

    /// Whether the bytes are counted.
    pub(crate) const fn is_counted(&self) -> bool {
        self.counted(self.held) > 0
    }

    /// Whether there is room for this many bytes in all. Nothing is reserved: a length that a client declares is not yet
    /// memory, and reserving it would let clients hold the budget without sending anything.
    pub(crate) fn fits(&self, bytes: usize) -> bool {
        let more = self.counted(bytes).saturating_sub(self.counted(self.held));
        let most = self.budget.capacity_for(self.priority);
        more == 0 || self.budget.used().saturating_add(more) <= most
    }

    /// Reserves this many bytes in all, more or fewer than before. If there is no room, nothing changes.
    pub(crate) fn resize(&mut self, bytes: usize) -> Result<(), BuffersFull> {
        self.resize_with(bytes, self.priority)
    }

    /// The same with another priority.
    pub(crate) fn resize_with(
        &mut self,
        bytes: usize,
        priority: BufferPriority,
    ) -> Result<(), BuffersFull> {
        let (before, after) = (self.counted(self.held), self.counted(bytes));
        self.budget
            .try_add(after.saturating_sub(before), priority)?;
        self.budget.release(before.saturating_sub(after));
        self.held = bytes;
        Ok(())
    }

    /// The budget.
    pub(crate) const fn budget(&self) -> &Arc<BufferBudget> {
        &self.budget
    }

    /// How many of these bytes are counted: all or none.
    const fn counted(&self, bytes: usize) -> usize {
        if bytes > self.uncounted_len { bytes } else { 0 }
    }
}

impl Drop for BufferReservation {
    fn drop(&mut self) {
        self.budget.release(self.counted(self.held));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reservation(budget: &Arc<BufferBudget>) -> BufferReservation {
        BufferReservation::new(Arc::clone(budget), BufferPriority::Normal)
    }

    #[test]
    fn what_does_not_fit_is_refused_and_what_is_dropped_is_released() {
        // A quarter is kept for small requests.
        let budget = Arc::new(BufferBudget::new(133_333));
        assert_eq!(budget.capacity_for(BufferPriority::Normal), 100_000);
        let (mut one, mut two) = (reservation(&budget), reservation(&budget));
        assert_eq!(one.resize(60_000), Ok(()));
        assert!(!two.fits(40_001) && two.fits(40_000));
        assert_eq!(two.resize(40_001), Err(BuffersFull));
        assert_eq!((two.held(), budget.used()), (0, 60_000), "nothing changes");
        assert_eq!(two.resize(40_000), Ok(()));
        assert_eq!(one.resize(60_001), Err(BuffersFull));
        assert_eq!(one.resize(50_000), Ok(()));
        assert_eq!(budget.used(), 90_000);
        drop(two);
        assert_eq!(budget.used(), 50_000);
        drop(one);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn small_buffers_and_those_of_operators_are_never_refused() {
        let budget = Arc::new(BufferBudget::new(13_333));
        let (mut large, mut small) = (reservation(&budget), reservation(&budget));
        assert_eq!(large.resize(10_000), Ok(()));
        assert_eq!(small.resize(UNCOUNTED_LEN), Ok(()));
        assert!(!small.is_counted() && small.fits(UNCOUNTED_LEN));
        assert_eq!(small.resize(UNCOUNTED_LEN + 1), Err(BuffersFull));
        let mut many = reservation(&budget).with_uncounted_len(0);
        assert_eq!(many.resize_with(3_333, BufferPriority::Small), Ok(()));
        let full = many.resize_with(3_334, BufferPriority::Small);
        assert_eq!(full, Err(BuffersFull));
        drop(many);
        let mut operator = BufferReservation::new(Arc::clone(&budget), BufferPriority::Operator);
        assert!(operator.fits(16_384));
        assert_eq!(operator.resize(16_384), Ok(()));
        assert_eq!(budget.used(), 26_384, "it is counted");
        drop(operator);
        assert_eq!(budget.used(), 10_000);
    }

    /// Many threads reserve and release at random. The budget is never exceeded, and zero at the end.
    #[test]
    fn threads_together_never_exceed_the_budget() {
        let budget = Arc::new(BufferBudget::new(1_000_000));
        std::thread::scope(|scope| {
            for seed in 1..=4_usize {
                let budget = &budget;
                scope.spawn(move || {
                    let mut held: Vec<_> = (0..8).map(|_| reservation(budget)).collect();
                    let mut random = seed;
                    for _ in 0..20_000 {
                        random = random.wrapping_mul(6_364_136_223_846_793_005) ^ (random >> 29);
                        let size = (random >> 8) % 400_000;
                        let _full = held[random % 8].resize(size);
                        assert!(budget.used() <= 1_000_000);
                    }
                });
            }
        });
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn the_fuller_the_budget_the_less_time_slow_clients_have() {
        let budget = Arc::new(BufferBudget::new(64 << 20));
        let full = Duration::from_secs(10);
        let mut held = reservation(&budget);
        for (used, seconds) in [(0, 10), (24, 10), (36, 5), (47, 1), (48, 1)] {
            held.resize(used << 20).unwrap();
            assert_eq!(budget.timeout(full).as_secs(), seconds, "{used} MiB");
        }
        assert_eq!(
            budget.timeout(Duration::from_millis(200)),
            Duration::from_millis(200)
        );
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_are_all_counted_and_logged_once_a_minute() {
        let (budget, counters) = (BufferBudget::new(0), ListenerCounters::default());
        for (refused, unlogged) in [(1, 0), (2, 1), (3, 2)] {
            budget.record_refusal(&counters);
            assert_eq!(counters.refused_buffers(), refused);
            assert_eq!(budget.unlogged.load(Ordering::Relaxed), unlogged);
        }
        tokio::time::advance(LOG_INTERVAL).await;
        budget.record_refusal(&counters);
        assert_eq!(budget.unlogged.load(Ordering::Relaxed), 0);
    }
}
