//! The service's saturation: the queue of waiting requests, and the scheduling delay of the runtime.
//!
//! Decisions take microseconds, so only requests that have to wait accumulate. This module bounds them. It measures the
//! runtime's delay and reports it, but does not refuse requests because of it: see docs/adr/0019. Must not know: requests,
//! limits, sockets.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::{Instant, sleep};

/// The default of the most requests that may wait at the same time.
pub const DEFAULT_MAX_WAITING: usize = 1_000;

/// The time between two measurements of the runtime's delay.
const MEASURE_INTERVAL: Duration = Duration::from_millis(250);
/// The number of measurements in a period. The worst delay of the last one to two periods, 8 to 16 s, is reported.
const MEASUREMENTS: u32 = 32;
/// A longer delay is logged as a warning.
const WARN_DELAY: Duration = Duration::from_secs(1);

/// The saturation of a server.
#[derive(Debug)]
pub struct Saturation {
    max_waiting: usize,
    waiting: AtomicUsize,
    refused: AtomicU64,
    let_through: AtomicU64,
    late_micros: AtomicU64,
}

/// The permit of one request in the wait queue. Dropping it releases its place. Unless it is
/// [completed](WaitPermit::complete) before, the request did not wait until its turn.
pub struct WaitPermit {
    saturation: Arc<Saturation>,
    abandon: Option<Box<dyn FnOnce() + Send + Sync>>,
}

impl Saturation {
    /// A queue for at most `most` waiting requests.
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

    /// The number of requests that wait now.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// The most requests that may wait at the same time.
    #[must_use]
    pub const fn max_waiting(&self) -> usize {
        self.max_waiting
    }

    /// The number of requests that were refused because the queue was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }

    /// The number of requests that were admitted without a wait because the queue was full and their limits are `open`.
    #[must_use]
    pub fn let_through(&self) -> u64 {
        self.let_through.load(Ordering::Relaxed)
    }

    /// The worst scheduling delay of the runtime in the last seconds, in microseconds: how long a ready task waits for a
    /// thread.
    #[must_use]
    pub fn late_micros(&self) -> u64 {
        self.late_micros.load(Ordering::Relaxed)
    }

    /// Measures the runtime's delay. Never completes; spawn it as a task beside the listeners.
    pub async fn measure_runtime_delay(self: Arc<Self>) {
        let (mut worst, mut before) = (Duration::ZERO, Duration::ZERO);
        loop {
            for _ in 0..MEASUREMENTS {
                // The runtime's own clock: it affects no decision, and tests can advance it.
                let begun = Instant::now();
                sleep(MEASURE_INTERVAL).await;
                let late = begun.elapsed().saturating_sub(MEASURE_INTERVAL);
                if late >= WARN_DELAY && worst < WARN_DELAY {
                    let late_ms = u64::try_from(late.as_millis()).unwrap_or(u64::MAX);
                    tracing::warn!(late_ms, "runtime overloaded");
                }
                worst = worst.max(late);
                let delay = worst.max(before).as_micros();
                let delay = u64::try_from(delay).unwrap_or(u64::MAX);
                self.late_micros.store(delay, Ordering::Relaxed);
            }
            before = std::mem::take(&mut worst);
        }
    }

    /// Whether the queue is full.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.waiting() >= self.max_waiting
    }

    /// Enters the queue. It never fails: between [`Self::is_full`] and this call every thread may let one more request in.
    #[must_use]
    pub fn acquire(self: &Arc<Self>) -> WaitPermit {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitPermit {
            saturation: Arc::clone(self),
            abandon: None,
        }
    }

    /// Counts a request that was refused because the queue was full.
    pub fn count_refused(&self) {
        self.refused.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request that was admitted without a wait because the queue was full.
    pub fn count_let_through(&self) {
        self.let_through.fetch_add(1, Ordering::Relaxed);
    }
}

impl WaitPermit {
    /// The same permit, which calls `abandon` if it is dropped before the request's turn.
    pub(crate) fn on_abandon(mut self, abandon: impl FnOnce() + Send + Sync + 'static) -> Self {
        self.abandon = Some(Box::new(abandon));
        self
    }

    /// Releases the place of a request that has waited until its turn.
    pub fn complete(mut self) {
        self.abandon = None;
    }
}

impl Drop for WaitPermit {
    fn drop(&mut self) {
        self.saturation.waiting.fetch_sub(1, Ordering::Relaxed);
        if let Some(abandon) = self.abandon.take() {
            abandon();
        }
    }
}

impl fmt::Debug for WaitPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitPermit").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::task::{JoinSet, yield_now};
    use tokio::time::advance;

    #[test]
    fn permits_are_counted_and_released_on_drop() {
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
    async fn the_worst_delay_is_reported_for_a_while() {
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
