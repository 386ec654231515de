//! I-01: in no window is more admitted than the burst, the window's refill, and what the mode allows beyond.
//!
//! An admission counts for a window only if it was asked and answered inside. Windows that matter begin with a question and
//! end with an answer; one sweep over the answers looks at all of them. Must not know: how a limiter decides.

use std::collections::BTreeMap;

use super::allowance::Allowance;
use super::record::{History, Operation, Record, RecordedVerdict};
use super::sweep::Row;
use super::violation::{Promise, Violation};

/// The worst window of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorstWindow {
    /// Whose key; empty if nothing was admitted.
    pub key: String,
    /// Nanoseconds of refill admitted beyond the limit itself; below zero if the limit was never reached.
    pub beyond: i128,
    /// The same in units, rounded up; zero if within the limit.
    pub units: u64,
    /// Units admitted on that key, and what its whole history would have allowed.
    pub admitted: u64,
    /// See there.
    pub allowed: u64,
    /// Units admitted on all keys.
    pub in_all: u64,
}

/// Whether every window on every key is within the allowance, and what the worst one was.
///
/// # Errors
/// The key whose worst window is not.
pub fn bound(history: &History, allowance: &Allowance) -> Result<WorstWindow, Violation> {
    let bucket = allowance.bucket();
    let mut worst = WorstWindow {
        key: String::new(),
        beyond: i128::MIN,
        units: 0,
        admitted: 0,
        allowed: 0,
        in_all: 0,
    };
    for (key, records) in history.by_key() {
        let spent = records.iter().filter(|record| record.is_spent());
        let admitted = spent.map(|record| record.cost).sum::<u64>();
        worst.in_all += admitted;
        let priced = |cost| bucket.price(cost);
        let Some((most, until)) = worst_window(&records, priced) else {
            continue;
        };
        let beyond = most - bucket.capacity();
        if beyond > allowance.beyond() {
            let allowed = allowance.beyond();
            let why = format!(
                "a window that ends at {until} admits {beyond} ns of refill beyond the limit, and {allowed} are allowed"
            );
            return Err(Violation::new(Promise::Bound, key, why));
        }
        if beyond > worst.beyond {
            worst.beyond = beyond;
            worst.admitted = admitted;
            worst.allowed = allowed_in_all(&records, allowance);
            key.clone_into(&mut worst.key);
        }
    }
    let units = (worst.beyond.max(0) + i128::from(bucket.interval) - 1)
        .checked_div(i128::from(bucket.interval));
    worst.units = u64::try_from(units.unwrap_or(0)).unwrap_or(u64::MAX);
    Ok(worst)
}

/// Units that may be admitted between the first question and the last answer.
fn allowed_in_all(records: &[&Record], allowance: &Allowance) -> u64 {
    let first = records.iter().map(|record| record.invoked).min();
    let last = records.iter().map(|record| record.completed).max();
    let span = last.unwrap_or(0).saturating_sub(first.unwrap_or(0));
    let bucket = allowance.bucket();
    let nanos = bucket.capacity() + allowance.beyond() + i128::from(span);
    let units = nanos.checked_div(i128::from(bucket.interval)).unwrap_or(0);
    u64::try_from(units).unwrap_or(u64::MAX)
}

/// The same for a log: no window of this length on any key admits more than the limit and so many units beyond.
///
/// # Errors
/// A window that does.
pub fn bound_of_log(
    history: &History,
    limit: u64,
    window: u64,
    beyond: u64,
) -> Result<u64, Violation> {
    let mut most = 0;
    for (key, records) in history.by_key() {
        let mut spent: Vec<&Record> = records
            .into_iter()
            .filter(|record| record.is_spent())
            .collect();
        spent.sort_by_key(|record| record.completed);
        // What lies in the window that ends with the last answer, by when it was asked.
        let mut asked: BTreeMap<(u64, u64), u64> = BTreeMap::new();
        let mut inside = 0;
        for record in spent {
            // An entry leaves at exactly its instant and the window, so both ends cannot be in one.
            let begins = record.completed.saturating_sub(window.saturating_sub(1));
            while let Some(first) = asked.first_entry()
                && first.key().0 < begins
            {
                inside -= first.remove();
            }
            if record.invoked >= begins {
                *asked.entry((record.invoked, record.request)).or_default() += record.cost;
                inside += record.cost;
            }
            most = most.max(inside);
            if inside > limit.saturating_add(beyond) {
                let why = format!("{inside} of {limit} were admitted in one window");
                return Err(Violation::new(Promise::Bound, key, why));
            }
        }
    }
    Ok(most)
}

/// The most that is admitted in any window, less its length, and when that window ends. Nothing if nothing is admitted.
fn worst_window(records: &[&Record], priced: impl Fn(u64) -> i128) -> Option<(i128, u64)> {
    let mut spent: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|record| record.is_spent())
        .collect();
    // What was given back counts for every window that it touches: it may have been given then.
    let mut given: Vec<&Record> = records
        .iter()
        .copied()
        .filter(|record| {
            record.act == Operation::GiveBack && record.verdict != RecordedVerdict::Failed
        })
        .collect();
    given.sort_by_key(|record| std::cmp::Reverse(record.invoked));
    let mut starts: Vec<u64> = spent.iter().map(|record| record.invoked).collect();
    starts.sort_unstable();
    starts.dedup();
    let places: Vec<i128> = starts.iter().copied().map(i128::from).collect();
    let mut row = Row::of(&places);
    let up_to = |instant: u64| starts.partition_point(|start| *start <= instant);

    spent.sort_by_key(|record| record.completed);
    let mut worst: Option<(i128, u64)> = None;
    for record in spent {
        while let Some(gift) = given.pop_if(|gift| gift.invoked <= record.completed) {
            row.add(up_to(gift.completed), -priced(gift.cost));
        }
        let count = up_to(record.invoked);
        row.add(count, priced(record.cost));
        // A window that ends here and does not contain this admission is no worse than one that ended before.
        let most = row.largest(count) - i128::from(record.completed);
        if worst.is_none_or(|(worst, _)| most > worst) {
            worst = Some((most, record.completed));
        }
    }
    worst
}

#[cfg(test)]
pub(super) fn worst_window_by_looking_at_all(
    records: &[&Record],
    priced: impl Fn(u64) -> i128,
) -> Option<i128> {
    let spent = || records.iter().filter(|record| record.is_spent());
    let given = || {
        let given = records
            .iter()
            .filter(|record| record.act == Operation::GiveBack);
        given.filter(|record| record.verdict != RecordedVerdict::Failed)
    };
    let windows = spent().flat_map(|first| {
        spent()
            .filter(|last| last.completed >= first.invoked)
            .map(|last| (first.invoked, last.completed))
    });
    windows
        .filter(|(from, to)| {
            spent().any(|record| record.invoked >= *from && record.completed <= *to)
        })
        .map(|(from, to)| {
            let inside = spent().filter(|r| r.invoked >= from && r.completed <= to);
            let touching = given().filter(|r| r.completed >= from && r.invoked <= to);
            inside.map(|record| priced(record.cost)).sum::<i128>()
                - touching.map(|record| priced(record.cost)).sum::<i128>()
                - i128::from(to - from)
        })
        .max()
}

#[cfg(test)]
pub(super) fn worst_window_by_sweeping(
    records: &[&Record],
    priced: impl Fn(u64) -> i128,
) -> Option<i128> {
    worst_window(records, priced).map(|(most, _)| most)
}
