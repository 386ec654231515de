//! I-14: permits in use never exceed the limit, and permits of a lost client return when their leases expire.
//!
//! A place is surely held from the answer that granted it until the question that gives it back, or until its lease ends as
//! counted from the last question; it may be held from question to answer. Must not know: how leases are kept.

use std::collections::BTreeMap;
use std::time::Duration;

use super::record::{History, Operation, Record, RecordedVerdict};
use super::violation::{Promise, Violation};

/// A limit on places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PermitLimit {
    /// How many may be held.
    pub limit: u64,
    /// For how long without a renewal.
    pub lease: Duration,
}

/// When a lease was surely held, and when it may have been.
#[derive(Clone, Copy, Debug)]
struct HeldPermit {
    weight: u64,
    surely: (u64, u64),
    perhaps: (u64, u64),
}

/// Whether no more places were held at once than there are, and nobody was denied one while there surely was one. Answers the
/// most that were surely held at once.
///
/// # Errors
/// The instant at which it was otherwise.
pub fn conservation(history: &History, places: PermitLimit) -> Result<u64, Violation> {
    let mut most = 0;
    for (key, records) in history.by_key() {
        let held = leases(&records, places.lease);
        let surely = held.iter().map(|held| (held.surely, held.weight));
        let (worst, at) = largest(surely);
        if worst > places.limit {
            let why = format!("{worst} places of {} were held at {at}", places.limit);
            return Err(Violation::new(Promise::Conservation, key, why));
        }
        most = most.max(worst);
        let denied = |record: &&&Record| {
            matches!(record.act, Operation::Acquire(_))
                && record.verdict == RecordedVerdict::Denied
                && !record.is_degraded
        };
        for record in records.iter().filter(denied) {
            let touches = |held: &&HeldPermit| {
                held.perhaps.0 <= record.completed && held.perhaps.1 >= record.invoked
            };
            let weights = held.iter().filter(touches).map(|held| held.weight);
            let taken: u64 = weights.sum();
            if taken + record.cost <= places.limit {
                let why = format!(
                    "denied at {} with at most {taken} of {} places held",
                    record.invoked, places.limit
                );
                return Err(Violation::new(Promise::Conservation, key, why));
            }
        }
    }
    Ok(most)
}

fn leases(records: &[&Record], lease: Duration) -> Vec<HeldPermit> {
    let lease = u64::try_from(lease.as_nanos()).unwrap_or(u64::MAX);
    let mut sorted: Vec<&Record> = records.to_vec();
    sorted.sort_by_key(|record| record.invoked);
    let mut held: BTreeMap<u64, HeldPermit> = BTreeMap::new();
    for record in sorted {
        let is_done = record.verdict == RecordedVerdict::Admitted;
        let may_be_done = record.may_have_charged();
        match record.act {
            Operation::Acquire(id) if may_be_done => {
                let surely = if is_done {
                    (record.completed, record.invoked.saturating_add(lease))
                } else {
                    (0, 0)
                };
                held.insert(
                    id,
                    HeldPermit {
                        weight: record.cost,
                        surely,
                        perhaps: (record.invoked, record.completed.saturating_add(lease)),
                    },
                );
            }
            Operation::Renew(id) if may_be_done => {
                if let Some(held) = held.get_mut(&id) {
                    if is_done {
                        held.surely.1 = record.invoked.saturating_add(lease);
                    }
                    held.perhaps.1 = record.completed.saturating_add(lease);
                }
            }
            Operation::Release(id) => {
                if let Some(held) = held.get_mut(&id) {
                    held.surely.1 = held.surely.1.min(record.invoked);
                    if is_done {
                        held.perhaps.1 = held.perhaps.1.min(record.completed);
                    }
                }
            }
            _ => {}
        }
    }
    held.into_values().collect()
}

/// The largest sum of weights at any instant, and that instant. Ends are not inside.
fn largest(spans: impl Iterator<Item = ((u64, u64), u64)>) -> (u64, u64) {
    let mut edges: Vec<(u64, bool, u64)> = spans
        .filter(|((from, to), _)| from < to)
        .flat_map(|((from, to), weight)| [(from, true, weight), (to, false, weight)])
        .collect();
    edges.sort_unstable();
    let (mut now, mut worst) = (0_u64, (0, 0));
    for (at, begins, weight) in edges {
        now = if begins {
            now.saturating_add(weight)
        } else {
            now.saturating_sub(weight)
        };
        if now > worst.0 {
            worst = (now, at);
        }
    }
    worst
}
