//! Waits for the instant of each request on a thread of its own.
//!
//! The runtime's timers have milliseconds, and a request that is sent a millisecond late has a millisecond too much latency. A
//! parked thread wakes up within about 50 µs. Must not know: what is sent.

use std::thread::Thread;
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use super::schedule::{DueRequest, Schedule};
use crate::output::CommandError;

/// Requests that are due and not taken yet. Beyond it the thread waits; instants stay those of the schedule.
const QUEUE_LENGTH: usize = 4_096;

/// Requests in the order in which they are due.
pub(super) struct DueRequests {
    queue: mpsc::Receiver<DueRequest>,
    thread: Thread,
    /// How many more were due when the thread ended early.
    behind: oneshot::Receiver<usize>,
}

impl DueRequests {
    /// The next request, once it is due. `None` after the last one.
    pub(super) async fn next(&mut self) -> Option<DueRequest> {
        self.queue.recv().await
    }

    /// Ends the thread. Returns how many requests are due and were not taken.
    pub(super) async fn end(mut self) -> usize {
        self.queue.close();
        self.thread.unpark();
        let mut count = 0;
        while self.queue.recv().await.is_some() {
            count += 1;
        }
        // A thread that has sent all requests says nothing.
        count + self.behind.await.unwrap_or(0)
    }
}

/// Starts the thread. It ends with the schedule, or when the requests are dropped.
pub(super) fn start(mut schedule: Schedule, began: Instant) -> Result<DueRequests, CommandError> {
    let (sender, queue) = mpsc::channel(QUEUE_LENGTH);
    let (count, behind) = oneshot::channel();
    let pace = move || {
        while let Some(request) = schedule.next() {
            let is_due = wait_until(began, request.at, &sender);
            if !is_due || sender.blocking_send(request).is_err() {
                let now = began.elapsed();
                let later = schedule.take_while(|later| later.at <= now).count();
                // If nobody asks, nobody counts.
                count.send(usize::from(is_due) + later).ok();
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("pacer".to_owned());
    let thread = thread
        .spawn(pace)
        .map_err(|error| CommandError::Other(format!("cannot start a thread: {error}").into()))?;
    Ok(DueRequests {
        queue,
        thread: thread.thread().clone(),
        behind,
    })
}

/// Returns whether the time has come: not if the run ends first.
fn wait_until(began: Instant, at: Duration, sender: &mpsc::Sender<DueRequest>) -> bool {
    loop {
        let left = at.saturating_sub(began.elapsed());
        if left.is_zero() || sender.is_closed() {
            return left.is_zero();
        }
        // It may wake up early, so it looks again.
        std::thread::park_timeout(left);
    }
}

#[cfg(test)]
mod tests {
    use super::super::schedule::{Arrivals, Step};
    use super::*;

    /// More than fit into the queue are due at once, and then none for an hour.
    #[tokio::test]
    async fn all_requests_that_are_due_are_counted_when_the_run_ends() {
        let steps = vec![
            Step::new(1e-3, Duration::from_nanos(10)),
            Step::new(1e18, Duration::from_hours(2)),
        ];
        let schedule = Schedule::from_steps(steps, Arrivals::Even);
        let mut due = start(schedule, Instant::now()).unwrap();
        for _ in 0..100 {
            due.next().await.unwrap();
        }
        let count = due.end().await;
        // The first of the second step is due as well.
        assert!((9_900..=9_902).contains(&count), "{count}");
    }
}
