//! A timer whose deadline moves later without work: it fires at an earlier deadline, and is set anew only then.
//!
//! A timer of the runtime costs a lock when it is set and another when it is dropped. Deadlines of requests are set for every
//! request and nearly never reached, so one timer serves all requests of a connection. Must not know: what is awaited.

use std::future::Future as _;
use std::pin::Pin;
use std::task::Context;

use tokio::time::{Instant, Sleep, sleep_until};

/// A timer for one deadline after the other.
#[derive(Debug, Default)]
pub(super) struct LazyTimer {
    /// Made when a deadline is first awaited.
    sleep: Option<Pin<Box<Sleep>>>,
}

impl LazyTimer {
    /// Whether the deadline has passed. Otherwise the task is woken when it has, or earlier.
    pub(super) fn has_passed(&mut self, deadline: Instant, context: &mut Context<'_>) -> bool {
        let sleep = self
            .sleep
            .get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if sleep.deadline() > deadline {
            sleep.as_mut().reset(deadline);
        }
        while sleep.as_mut().poll(context).is_ready() {
            if sleep.deadline() >= deadline {
                return true;
            }
            // It was set for an earlier deadline.
            sleep.as_mut().reset(deadline);
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::task::Poll;
    use std::time::Duration;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    async fn pass(timer: &mut LazyTimer, deadline: Instant) -> Duration {
        let begun = Instant::now();
        poll_fn(|context| match timer.has_passed(deadline, context) {
            true => Poll::Ready(()),
            false => Poll::Pending,
        })
        .await;
        begun.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_may_be_later_or_earlier_than_the_one_before() {
        let mut timer = LazyTimer::default();
        let begun = Instant::now();
        let mut look = |seconds: u32| {
            let deadline = begun + seconds * SECOND;
            let is_passed =
                timer.has_passed(deadline, &mut Context::from_waker(std::task::Waker::noop()));
            assert!(!is_passed, "{seconds}");
        };
        look(5);
        look(9);
        look(3);
        assert_eq!(pass(&mut timer, begun + 7 * SECOND).await, 7 * SECOND);
        assert_eq!(pass(&mut timer, begun + 8 * SECOND).await, SECOND);
        assert_eq!(pass(&mut timer, begun).await, Duration::ZERO, "it is over");
    }
}
