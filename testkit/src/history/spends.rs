//! I-02 and I-11: what was admitted is what the store charged, on every key of a request.
//!
//! The store's word is how far the state of a bucket moved between two looks while it was never full: exactly the interval
//! for each unit. A call whose answer was lost may be charged once or not at all. Must not know: how state is stored.

use std::collections::BTreeMap;

use super::allowance::Bucket;
use super::record::{History, Operation, Record, RecordedVerdict};
use super::violation::{Promise, Violation};

/// What the store charged on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreSpends {
    /// Units that the store charged.
    pub units: u64,
    /// Units that it was heard to admit.
    pub heard: u64,
    /// Units that it may have charged without being heard.
    pub unheard: u64,
}

/// Whether the state of a key's bucket moved, by so many nanoseconds, as far as the history says.
///
/// # Errors
/// It moved less than was admitted, more than was asked, or by no whole number of units.
pub fn spends(
    history: &History,
    key: &str,
    bucket: Bucket,
    moved: u64,
) -> Result<StoreSpends, Violation> {
    let broken = |why| Err(Violation::new(Promise::NoDoubleSpend, key, why));
    let units = moved.checked_div(bucket.interval).unwrap_or(0);
    if u128::from(units) * u128::from(bucket.interval) != u128::from(moved) {
        let interval = bucket.interval;
        return broken(format!(
            "the state moved by {moved} ns, which is no multiple of {interval}"
        ));
    }
    let mut spent = StoreSpends {
        units,
        heard: 0,
        unheard: 0,
    };
    for record in of_key(history, key) {
        let is_heard = record.verdict == RecordedVerdict::Admitted && !record.is_degraded;
        if is_heard {
            spent.heard += record.cost;
        } else if record.may_have_charged() {
            spent.unheard += record.cost;
        }
    }
    let StoreSpends { heard, unheard, .. } = spent;
    if units < heard {
        return broken(format!("{heard} were admitted and only {units} charged"));
    }
    if units > heard + unheard {
        return broken(format!(
            "{units} were charged, {heard} were admitted, and at most {unheard} more were asked for"
        ));
    }
    Ok(spent)
}

/// The same where no answer was lost: what was admitted and what was charged are equal.
///
/// # Errors
/// They are not.
pub fn spends_exactly(
    history: &History,
    key: &str,
    bucket: Bucket,
    moved: u64,
) -> Result<u64, Violation> {
    let spent = spends(history, key, bucket, moved)?;
    if spent.units == spent.heard {
        return Ok(spent.units);
    }
    let why = format!("{} were admitted and {} charged", spent.heard, spent.units);
    Err(Violation::new(Promise::NoDoubleSpend, key, why))
}

/// Whether every request had one answer for all of its keys, and each key was charged for what was admitted and for nothing
/// that another key refused. `moved` says how far each key's bucket moved.
///
/// # Errors
/// A request was admitted in part, or a key was charged otherwise.
pub fn all_or_nothing(history: &History, moved: &[(&str, Bucket, u64)]) -> Result<(), Violation> {
    let mut verdicts: BTreeMap<u64, &Record> = BTreeMap::new();
    for record in history.records.iter().filter(|r| r.act == Operation::Spend) {
        let first = verdicts.entry(record.request).or_insert(record);
        if first.verdict != record.verdict {
            let why = format!("{:?} here, {:?} there", record.verdict, first.verdict);
            return Err(Violation::new(Promise::AllOrNothing, &record.key, why));
        }
    }
    for (key, bucket, moved) in moved {
        spends(history, key, *bucket, *moved).map_err(|broken| Violation {
            promise: Promise::AllOrNothing,
            ..broken
        })?;
    }
    Ok(())
}

fn of_key<'a>(history: &'a History, key: &str) -> impl Iterator<Item = &'a Record> {
    let spends = history.records.iter().filter(|r| r.act == Operation::Spend);
    spends.filter(move |record| record.key == key)
}
