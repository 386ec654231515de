//! A timer for transfers: it expires when a peer transfers too little for a while, or at a deadline.
//!
//! A peer that transfers one byte now and then is never idle. So bytes only make up for a part of the time that was waited for
//! them. Time in which nobody waits for the peer does not count. Must not know: what is transferred.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// The slowest transfer between a client and us, in bytes per second. The slowest mobile networks are ten times as fast.
pub(crate) const MIN_TRANSFER_RATE: u32 = 240;

/// Expires when too little was transferred for a while, or at a deadline.
#[derive(Debug)]
pub(crate) struct TransferTimer {
    timeout: Duration,
    /// The bytes that make up for one second. Without it any byte makes up for all the time that was waited.
    min_rate: Option<u32>,
    deadline: Option<Instant>,
    /// Made when a transfer first waits. Most never do, and bodies are moved often.
    wait: Option<Box<Wait>>,
}

/// The waits of a transfer.
#[derive(Debug)]
struct Wait {
    /// The time that was waited, less what bytes made up for.
    waited: Duration,
    /// Since when the transfer waits, if it does.
    since: Option<Instant>,
    sleep: Pin<Box<Sleep>>,
}

impl TransferTimer {
    pub(crate) const fn new(timeout: Duration, deadline: Option<Instant>) -> Self {
        Self {
            timeout,
            min_rate: None,
            deadline,
            wait: None,
        }
    }

    /// The same with a rate that the transfer must have.
    pub(crate) const fn with_min_rate(mut self, min_rate: Option<u32>) -> Self {
        self.min_rate = min_rate;
        self
    }

    /// Records that bytes were transferred. Returns whether they made up for all the time that was waited.
    pub(crate) fn record_progress(&mut self, bytes: usize) -> bool {
        let Some(wait) = &mut self.wait else {
            return true;
        };
        if let Some(since) = wait.since.take() {
            wait.waited = wait.waited.saturating_add(since.elapsed());
        }
        wait.waited = match self.min_rate {
            Some(rate) => wait.waited.saturating_sub(time_for(bytes, rate)),
            None => Duration::ZERO,
        };
        wait.waited.is_zero()
    }

    /// Call it while nothing can be transferred. Returns whether the time is up; otherwise the task is woken when it is.
    pub(crate) fn has_expired(&mut self, context: &mut Context<'_>) -> bool {
        self.has_expired_for(0, context)
    }

    /// The same if this many bytes are awaited at once: they have the time that the rate gives them, too.
    pub(crate) fn has_expired_for(&mut self, bytes: usize, context: &mut Context<'_>) -> bool {
        let is_waiting = |wait: &Wait| wait.since.is_some();
        if !self.wait.as_deref().is_some_and(is_waiting) {
            self.start_waiting(bytes);
        }
        let sleep = self.wait.as_mut().map(|wait| wait.sleep.as_mut());
        sleep.is_some_and(|sleep| sleep.poll(context) == Poll::Ready(()))
    }

    fn start_waiting(&mut self, bytes: usize) {
        let now = Instant::now();
        let rate = self.min_rate.unwrap_or(u32::MAX);
        let allowed = self.timeout.saturating_add(time_for(bytes, rate));
        let waited = self
            .wait
            .as_ref()
            .map_or(Duration::ZERO, |wait| wait.waited);
        let at = now + allowed.saturating_sub(waited);
        let at = self.deadline.map_or(at, |deadline| deadline.min(at));
        let wait = self.wait.get_or_insert_with(|| {
            Box::new(Wait {
                waited,
                since: None,
                sleep: Box::pin(sleep_until(at)),
            })
        });
        wait.since = Some(now);
        wait.sleep.as_mut().reset(at);
    }
}

/// The time that this many bytes take at this rate.
fn time_for(bytes: usize, rate: u32) -> Duration {
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    Duration::from_secs(1).saturating_mul(bytes) / rate.max(1)
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn expiry(timer: &mut TransferTimer) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| match timer.has_expired(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        begun.elapsed()
    }

    /// Waits for this long, and then something is transferred.
    async fn transfer(timer: &mut TransferTimer, wait: Duration, bytes: usize) {
        let has_expired = timer.has_expired(&mut Context::from_waker(Waker::noop()));
        assert!(!has_expired);
        advance(wait).await;
        timer.record_progress(bytes);
    }

    #[tokio::test(start_paused = true)]
    async fn progress_starts_the_time_again_and_the_deadline_stays() {
        let mut timer = TransferTimer::new(3 * SECOND, Some(Instant::now() + 10 * SECOND));
        assert_eq!(expiry(&mut timer).await, 3 * SECOND);
        timer.record_progress(1);
        assert_eq!(expiry(&mut timer).await, 3 * SECOND);
        timer.record_progress(1);
        assert_eq!(expiry(&mut timer).await, 3 * SECOND);
        timer.record_progress(1);
        assert_eq!(expiry(&mut timer).await, SECOND, "the deadline");
    }

    #[tokio::test(start_paused = true)]
    async fn bytes_make_up_for_the_time_that_the_rate_gives_them() {
        let mut timer = TransferTimer::new(10 * SECOND, None).with_min_rate(Some(100));
        for _ in 0..100 {
            transfer(&mut timer, 4 * SECOND, 400).await;
        }
        transfer(&mut timer, 4 * SECOND, 100).await;
        transfer(&mut timer, 4 * SECOND, 100).await;
        assert_eq!(expiry(&mut timer).await, 4 * SECOND, "six are used up");
        assert!(!timer.record_progress(100));
        assert!(timer.record_progress(100_000));
        assert_eq!(expiry(&mut timer).await, 10 * SECOND);
        assert!(timer.record_progress(10_000));
        let begun = Instant::now();
        poll_fn(|context| match timer.has_expired_for(500, context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        assert_eq!(begun.elapsed(), 15 * SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn time_in_which_nobody_waits_does_not_count() {
        let mut timer = TransferTimer::new(10 * SECOND, None).with_min_rate(Some(100));
        transfer(&mut timer, SECOND, 1).await;
        advance(100 * SECOND).await;
        let left = 9 * SECOND + SECOND / 100;
        assert_eq!(expiry(&mut timer).await.as_millis(), left.as_millis());
    }
}
