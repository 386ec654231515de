//! The open model over real connections: requests are sent when they are due, and timed from that instant.
//!
//! A request takes any connection that has room, as from a pool; without one it waits, and its time runs. Must not know: who
//! is asked.

use std::time::{Duration, Instant};

use super::client::Client;
use super::open_model::OpenModel;
use super::{DEADLINE, Way};
use crate::histogram::Histogram;
use crate::system;

/// How the load waits until the next request is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Waiting {
    /// It looks again and again: exact, for a load that has its core for itself.
    Spin,
    /// It sleeps, because a store runs on the same core. Timers are late by some microseconds, which count.
    Sleep,
}

/// Asks about every key, so many a second, and returns how long each took from when it was due. Pipelined requests are due
/// in batches.
pub(crate) fn lap(
    way: &Way<'_>,
    keys: &[u32],
    per_second: f64,
    waiting: Waiting,
) -> Result<Histogram, String> {
    let mut client = Client::open(way, keys.first().copied().unwrap_or(0))?;
    let shape = client.shape;
    let batch = if shape.in_batches { shape.depth } else { 1 };
    let most_under_way = if shape.in_batches { 1 } else { shape.depth };
    let mut model = OpenModel::new(per_second / batch as f64, keys.len() / batch);
    let (mut latencies, mut left, mut next_line) =
        (Histogram::new(), keys.len() / batch * batch, 0);
    let mut keys = keys.iter().copied();
    let began = Instant::now();
    while left > 0 {
        let now = began.elapsed();
        if now > DEADLINE {
            return Err(format!("{left} answers are missing after {DEADLINE:?}"));
        }
        model.advance(now);
        while model.is_waiting() {
            let count = client.lines.len();
            let free = (0..count)
                .map(|step| (next_line + step) % count)
                .find(|index| client.lines[*index].under_way() < most_under_way);
            let (Some(index), Some(due)) = (free, free.and_then(|_| model.take())) else {
                break;
            };
            let line = &mut client.lines[index];
            line.ask(keys.by_ref().take(batch), began + due);
            line.send()?;
            next_line = index + 1;
        }
        if waiting == Waiting::Sleep {
            let until = model
                .next_due()
                .map(|due| due.saturating_sub(began.elapsed()));
            let is_full = model.is_waiting();
            let most = Duration::from_secs(1);
            let timeout = until.filter(|_| !is_full).unwrap_or(most).min(most);
            system::wait_for_input(&client.poll, timeout)?;
        }
        client.turn(Duration::ZERO, &mut latencies, |_, answers| {
            left = left.saturating_sub(answers);
        })?;
    }
    Ok(latencies)
}
