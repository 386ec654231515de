//! How busy the service is: the queue of requests that wait, and how late the runtime is.
//!
//! Decisions take microseconds, so only requests that have to wait their turn pile up. This bounds them. It measures how
//! late the runtime is and reports it, and refuses nothing for it: see docs/adr/0019. Must not know: requests, limits,
//! sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// How many requests may wait at the same time unless the operator says otherwise.
pub const DEFAULT_MAX_WAITING: usize = 1_000;

/// How often it is measured how late the runtime is.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// So many measurements count: the worst of the last eight seconds or more.
const MEASUREMENTS: u32 = 32;
/// A runtime that is later than this is told of in the log.
const WARN_DELAY: Duration = Duration::from_secs(1);

/// How busy a server is.
#[derive(Debug)]
pub struct Saturation {
    max_waiting: usize,
    waiting: AtomicUsize,
    refused: AtomicU64,
    let_through: AtomicU64,
    late_micros: AtomicU64,
}

/// The place of one request in the wait queue. It is free again when this is dropped.
#[derive(Debug)]
pub struct WaitPermit(Arc<Saturation>);

impl Saturation {
    /// A queue in which so many requests may wait.
    #[must_use]
    pub fn with_max_waiting(most: usize) -> Arc<Self> {
        Arc::new(Self {
            max_waiting: most,
            waiting: AtomicUsize::new(0),
            refused: AtomicU64::new(0),
            let_through: AtomicU64::new(0),
            late_micros: AtomicU64::new(0),
        })
    }

    /// Requests that are being held back until they may go on.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// How many may be at the same time.
    #[must_use]
    pub const fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    /// Requests that would have had to wait and were refused, because too many did.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// Requests that would have had to wait and were let through, because too many did and their limits want it so.
    #[must_use]
    pub fn let_through(&self) -> u64 {
        self.let_through.load(Ordering::Relaxed)
    }

    /// How late the runtime was at worst in the last seconds, in microseconds: how long something that is ready waits for
    /// a thread.
    #[must_use]
    pub fn late_micros(&self) -> u64 {
        self.late_micros.load(Ordering::Relaxed)
    }

    /// Measures how late the runtime is. Never completes; run it as a task beside the listeners.
    pub async fn measure_runtime_delay(self: Arc<Self>) {
        let (mut worst, mut before) = (Duration::ZERO, Duration::ZERO);
        loop {
            for _ in 0..MEASUREMENTS {
                // The runtime's own clock: it decides nothing, and tests can move it.
                let begun = Instant::now();
                sleep(MEASURE_INTERVAL).await;
                let late = begun.elapsed().saturating_sub(MEASURE_INTERVAL);
                if late >= WARN_DELAY && worst < WARN_DELAY {
                    let late_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(late_ms, "the server has more to do than it can");
                }
                worst = worst.max(late);
                let told = worst.max(before).as_micros();
                let told = u64::try_from(told).unwrap_or(u64::MAX);
                self.late_micros.store(told, Ordering::Relaxed);
            }
            before = std::mem::take(&mut worst);
        }
    }

    /// Whether as many requests wait as may.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.max_waiting
    }

    /// Takes a place in the queue. It never fails: between [`Self::is_full`] and this call every thread may let one more
    /// request in.
    #[must_use]
    pub fn acquire(self: &Arc<Self>) -> WaitPermit {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitPermit(Arc::clone(self))
    }

    /// Counts a request that was refused because the queue was full.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was let through because the queue was full.
    pub fn count_let_through(&self) {
        self.let_through.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::advance;

    #[test]
    fn places_are_counted_and_free_again_when_nobody_stands_there() {
        let saturation = Saturation::with_max_waiting(2);
        let one = saturation.acquire();
        assert!(!saturation.is_full());
        let two = saturation.acquire();
        assert!(saturation.is_full());
        drop(one);
        assert_eq!(saturation.waiting(), 1);
        drop(two);
        assert_eq!(saturation.waiting(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn the_worst_of_the_last_seconds_is_told_and_forgotten_later() {
        let saturation = Saturation::with_max_waiting(1);
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&saturation).measure_runtime_delay());
        yield_now().await;
        let pass = async |span: Duration| {
            advance(span).await;
            yield_now().await;
        };
        pass(MEASURE_INTERVAL).await;
        assert!(saturation.late_micros() < 2_000, "the timer's own grain");
        pass(MEASURE_INTERVAL + Duration::from_millis(300)).await;
        let late = saturation.late_micros();
        assert!((300_000..302_000).contains(&late), "{late}");
        for _ in 0..MEASUREMENTS {
            pass(MEASURE_INTERVAL).await;
        }
        assert!(saturation.late_micros() >= 300_000, "not yet");
        for _ in 0..2 * MEASUREMENTS {
            pass(MEASURE_INTERVAL).await;
        }
        assert!(
            saturation.late_micros() < 2_000,
            "{}",
            saturation.late_micros()
        );
    }
}
