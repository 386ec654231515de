//! Waits for the instant of each request on a thread of its own.
//!
//! The runtime's timers have milliseconds, and a request that is sent a millisecond late has a millisecond too much latency. A
//! parked thread wakes up within about 50 µs. Must not know: what is sent.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;

use super::schedule::{DueRequest, Schedule};
use crate::output::CommandError;

/// Requests that are due and not taken yet. Beyond it the thread waits; instants stay those of the schedule.
const QUEUE_LENGTH: usize = 4_096;

/// Starts the thread. It ends with the schedule, or when the receiver is dropped.
pub(super) fn start(
    schedule: Schedule,
    began: Instant,
) -> Result<mpsc::Receiver<DueRequest>, CommandError> {
    let (sender, receiver) = mpsc::channel(QUEUE_LENGTH);
    let pace = move || {
        for request in schedule {
            wait_until(began, request.at);
            if sender.blocking_send(request).is_err() {
                return;
            }
        }
    };
    let thread = std::thread::Builder::new().name("pacer".to_owned());
    thread
        .spawn(pace)
        .map_err(|error| CommandError::Other(format!("cannot start a thread: {error}").into()))?;
    Ok(receiver)
}

fn wait_until(began: Instant, at: Duration) {
    loop {
        let left = at.saturating_sub(began.elapsed());
        if left.is_zero() {
            return;
        }
        // It may wake up early, so it looks again.
        std::thread::park_timeout(left);
    }
}
