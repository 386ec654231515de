//! The closed model: a request is sent when another is answered, so the server is always busy.
//!
//! Shows what a decision costs at saturation and how many there are in a second. Its latencies say nothing of callers, who do
//! not wait for each other. Must not know: who is asked.

use std::time::{Duration, Instant};

use super::client::Client;
use super::{DEADLINE, Way};
use crate::histogram::Histogram;

/// What a lap has shown.
pub(crate) struct Lap<T> {
    pub(crate) wall: Duration,
    /// What was read before and after it.
    pub(crate) before: T,
    pub(crate) after: T,
    /// From when each request was sent.
    pub(crate) latencies: Histogram,
}

/// Asks about every key in turn and waits for all answers. The processor time is read when all connections are open and used,
/// and again after the last answer.
pub(crate) fn lap<T>(
    way: &Way<'_>,
    keys: &[u32],
    processor: impl Fn() -> Result<T, String>,
) -> Result<Lap<T>, String> {
    let mut client = Client::open(way, keys.first().copied().unwrap_or(0))?;
    measured(&mut client, keys, &processor)
}

/// Several laps on the same connections.
pub(crate) fn laps<T>(
    way: &Way<'_>,
    keys: &[u32],
    rounds: usize,
    processor: impl Fn() -> Result<T, String>,
) -> Result<Vec<Lap<T>>, String> {
    let mut client = Client::open(way, keys.first().copied().unwrap_or(0))?;
    (0..rounds)
        .map(|_| measured(&mut client, keys, &processor))
        .collect()
}

fn measured<T>(
    client: &mut Client,
    keys: &[u32],
    processor: &dyn Fn() -> Result<T, String>,
) -> Result<Lap<T>, String> {
    let mut latencies = Histogram::new();
    let (began, before) = (Instant::now(), processor()?);
    ask_all(client, keys, &mut latencies)?;
    Ok(Lap {
        wall: began.elapsed(),
        before,
        after: processor()?,
        latencies,
    })
}

fn ask_all(client: &mut Client, keys: &[u32], latencies: &mut Histogram) -> Result<(), String> {
    let (mut left, shape) = (keys.len(), client.shape);
    let mut keys = keys.iter().copied();
    let began = Instant::now();
    for line in &mut client.lines {
        line.ask(keys.by_ref().take(shape.depth), began);
        line.send()?;
    }
    while left > 0 {
        if began.elapsed() > DEADLINE {
            return Err(format!("{left} answers are missing after {DEADLINE:?}"));
        }
        client.turn(Duration::from_secs(1), latencies, |line, answers| {
            left = left.saturating_sub(answers);
            let more = match (shape.in_batches, line.under_way()) {
                (true, 0) => shape.depth,
                (true, _) => 0,
                (false, _) => answers,
            };
            line.ask(keys.by_ref().take(more), Instant::now());
        })?;
    }
    Ok(())
}
