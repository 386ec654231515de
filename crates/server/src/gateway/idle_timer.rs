//! A timer for transfers: it expires when nothing was transferred for a while, or at a deadline.
//!
//! Must not know: what is transferred.

use std::future::Future as _;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::time::{Instant, Sleep, sleep_until};

/// Expires when nothing was transferred for a while, or at a deadline.
#[derive(Debug)]
pub(super) struct IdleTimer {
    timeout: Duration,
    deadline: Option<Instant>,
    /// Made when a transfer first waits. Most never do.
    sleep: Option<Pin<Box<Sleep>>>,
    /// Whether the timer runs since the last progress.
    is_running: bool,
}

impl IdleTimer {
    pub(super) const fn new(timeout: Duration, deadline: Option<Instant>) -> Self {
        Self {
            timeout,
            deadline,
            sleep: None,
            is_running: false,
        }
    }

    /// Records that something was transferred.
    pub(super) const fn record_progress(&mut self) {
        self.is_running = false;
    }

    /// Call it while nothing can be transferred. Returns whether the time is up; otherwise the task is woken when it is.
    pub(super) fn has_expired(&mut self, context: &mut Context<'_>) -> bool {
        let sleep = match &mut self.sleep {
            Some(sleep) if self.is_running => sleep,
            sleep => {
                let idle = Instant::now() + self.timeout;
                let at = self.deadline.map_or(idle, |deadline| deadline.min(idle));
                self.is_running = true;
                match sleep {
                    Some(sleep) => {
                        sleep.as_mut().reset(at);
                        sleep
                    }
                    none => none.insert(Box::pin(sleep_until(at))),
                }
            }
        };
        sleep.as_mut().poll(context) == Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    async fn expiry(timer: &mut IdleTimer) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| match timer.has_expired(context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn progress_starts_the_time_again_and_the_deadline_stays() {
        let second = Duration::from_secs(1);
        let mut timer = IdleTimer::new(3 * second, Some(Instant::now() + 10 * second));
        assert_eq!(expiry(&mut timer).await, 3 * second);
        timer.record_progress();
        assert_eq!(expiry(&mut timer).await, 3 * second);
        timer.record_progress();
        assert_eq!(expiry(&mut timer).await, 3 * second);
        timer.record_progress();
        assert_eq!(expiry(&mut timer).await, second, "the deadline");
    }
}
