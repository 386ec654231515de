//! I-12: the numbers of a reply fit together, and a reported reset does not move closer.
//!
//! Must not know: headers, how numbers were rounded but for how much.

use super::allowance::Bucket;
use super::record::{History, Operation, Record, RecordedVerdict};
use super::violation::{Promise, Violation};

/// Whether all numbers that replies report about a bucket are from one state, and states of one key only move ahead. Resets are
/// rounded by at most `precision` nanoseconds. Replies without the store are about another bucket and left out.
///
/// # Errors
/// What contradicts itself, or an earlier answer.
pub fn coherence(history: &History, bucket: Bucket, precision: u64) -> Result<u64, Violation> {
    let checked = coherence_of_each(history, bucket, precision)?;
    if !history.records.iter().any(|r| r.act == Operation::GiveBack) {
        for (key, records) in history.by_key() {
            in_order(key, &mut by_store(records), precision)?;
        }
    }
    Ok(checked)
}

/// The same of every answer by itself, where the store may have lost what it knew.
///
/// # Errors
/// What contradicts itself.
pub fn coherence_of_each(
    history: &History,
    bucket: Bucket,
    precision: u64,
) -> Result<u64, Violation> {
    let mut checked = 0;
    for (key, records) in history.by_key() {
        for record in by_store(records) {
            checked += u64::from(record.quota.is_some());
            one(record, bucket, precision)
                .map_err(|why| Violation::new(Promise::Coherence, key, why))?;
        }
    }
    Ok(checked)
}

fn by_store(records: Vec<&Record>) -> Vec<&Record> {
    let spends = records.into_iter().filter(|r| r.act == Operation::Spend);
    spends.filter(|record| !record.is_degraded).collect()
}

fn one(record: &Record, bucket: Bucket, precision: u64) -> Result<(), String> {
    let is_denied = record.verdict == RecordedVerdict::Denied;
    if is_denied && record.retry_after == Some(0) {
        return Err(format!("denied at {} without a wait", record.invoked));
    }
    if is_denied && record.retry_after.is_none() && record.cost <= bucket.burst {
        return Err(format!(
            "denied at {} without a retry-after",
            record.invoked
        ));
    }
    let Some(quota) = record.quota else {
        return Ok(());
    };
    if quota.remaining > quota.limit {
        return Err(format!("{} of {} remain", quota.remaining, quota.limit));
    }
    // What remains is what the debt leaves, rounded down, and the reset is the debt.
    let debt = i128::from(quota.reset_after);
    let slack = i128::from(precision);
    let left = bucket.price(quota.limit) - debt;
    let remains = bucket.price(quota.remaining);
    if remains > left + slack || remains + i128::from(bucket.interval) + slack < left {
        let (remaining, reset) = (quota.remaining, quota.reset_after);
        return Err(format!(
            "{remaining} remain and all is reset after {reset} ns: these are of two states"
        ));
    }
    Ok(())
}

/// Whether no reset is earlier than one that was reported before.
fn in_order(key: &str, records: &mut [&Record], precision: u64) -> Result<(), Violation> {
    let mut answered: Vec<(u64, u64)> = records
        .iter()
        .filter_map(|r| Some((r.completed, r.invoked.saturating_add(r.quota?.reset_after))))
        .collect();
    answered.sort_unstable();
    records.sort_by_key(|record| record.invoked);
    let mut answered = answered.into_iter().peekable();
    let mut latest = 0;
    for record in records.iter() {
        while let Some((_, reset)) = answered.next_if(|(done, _)| *done <= record.invoked) {
            latest = latest.max(reset);
        }
        let Some(quota) = record.quota else { continue };
        let reset = record.completed.saturating_add(quota.reset_after);
        // A bucket that is full again has no reset ahead of it.
        if reset.saturating_add(precision) < latest && latest > record.completed {
            let why = format!(
                "the reset moved from {latest} back to {reset} at {}",
                record.invoked
            );
            return Err(Violation::new(Promise::Coherence, key, why));
        }
    }
    Ok(())
}
