//! I-04 and I-05: everybody is answered in time, and soon after the store is back it decides again.
//!
//! Must not know: which fault there was.

use std::time::Duration;

use super::record::{History, Record, RecordedVerdict};
use super::violation::{Promise, Violation};

/// How fast answers were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AvailabilityBounds {
    /// The slowest, but for one of every thousand that was begun.
    pub p999: Duration,
    /// The slowest of all.
    pub slowest: Duration,
}

/// Whether every question had an answer, and all but one of every thousand that was begun within this time.
///
/// # Errors
/// A question had none, or it took longer.
pub fn availability(history: &History, within: Duration) -> Result<AvailabilityBounds, Violation> {
    let lost = |record: &&Record| {
        matches!(
            record.verdict,
            RecordedVerdict::Lost | RecordedVerdict::Failed
        )
    };
    if let Some(record) = history.records.iter().find(lost) {
        let why = format!("{:?} at {}", record.verdict, record.invoked);
        return Err(Violation::new(Promise::Availability, &record.key, why));
    }
    let mut times: Vec<u64> = history
        .records
        .iter()
        .map(|record| record.completed.saturating_sub(record.invoked))
        .collect();
    times.sort_unstable();
    // One of every thousand that was begun, so that one hiccup of the machine in a short history is none of ours.
    let rank = times.len() - times.len().div_ceil(1_000);
    let at = |rank: usize| {
        let nanos = rank.checked_sub(1).and_then(|index| times.get(index));
        Duration::from_nanos(nanos.copied().unwrap_or(0))
    };
    let speed = AvailabilityBounds {
        p999: at(rank),
        slowest: at(times.len()),
    };
    if speed.p999 > within {
        let why = format!("p99.9 is {:?}, above {within:?}", speed.p999);
        return Err(Violation::new(Promise::Availability, "", why));
    }
    Ok(speed)
}

/// Whether everything that was asked and answered between two instants was said to be decided without the store, and how
/// much that was. Nothing at all is an error too: then nobody asked.
///
/// # Errors
/// Something was said to be decided by a store that could not be asked.
pub fn degraded_throughout(history: &History, from: u64, to: u64) -> Result<usize, Violation> {
    let inside = |record: &&Record| record.invoked >= from && record.completed <= to;
    let mut count = 0;
    for record in history.records.iter().filter(inside) {
        if !record.is_degraded {
            let why = format!(
                "not degraded at {} although the store was gone",
                record.invoked
            );
            return Err(Violation::new(Promise::Availability, &record.key, why));
        }
        count += 1;
    }
    if count == 0 {
        return Err(Violation::new(Promise::Availability, "", "nobody asked"));
    }
    Ok(count)
}

/// Whether the store decides again within this time after it was healed, and how long that took.
///
/// # Errors
/// Something was decided without it later, or nothing was decided by it any more.
pub fn recovery(history: &History, healed: u64, within: Duration) -> Result<Duration, Violation> {
    let broken = |why: String| Err(Violation::new(Promise::Recovery, "", why));
    let without = |record: &&Record| {
        record.is_degraded
            || matches!(
                record.verdict,
                RecordedVerdict::Lost | RecordedVerdict::Failed
            )
    };
    let after = || history.records.iter().filter(|r| r.invoked >= healed);
    let last = after().filter(without).map(|record| record.completed).max();
    let took = Duration::from_nanos(last.unwrap_or(healed).saturating_sub(healed));
    if took > within {
        return broken(format!(
            "decided without the store {took:?} after it was back"
        ));
    }
    let since = last.unwrap_or(healed);
    if !after().any(|record| record.invoked >= since && !without(&record)) {
        return broken("the store decided nothing any more".to_owned());
    }
    Ok(took)
}
