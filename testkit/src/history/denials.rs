//! I-03: a client that keeps to its rate is not denied, and is admitted after `Retry-After`.
//!
//! A denial is false if the bucket had room even under the worst assumption: everything that may have been charged was, as
//! late as possible, and nothing was given back. Must not know: how a limiter decides.

use std::collections::BTreeMap;

use super::allowance::Bucket;
use super::record::{History, Operation, Record, RecordedVerdict};
use super::violation::{Promise, Violation};

/// What was looked at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Denials {
    /// Denials by the store.
    pub denied: u64,
    /// Requests that came after exactly the wait that the request before was told, and nobody in between.
    pub returned: u64,
}

/// Whether no denial by the store is false. `held` units of each bucket may be out of reach, with other nodes.
///
/// # Errors
/// One that is.
pub fn denials(history: &History, bucket: Bucket, held: u64) -> Result<Denials, Violation> {
    let mut looked = Denials::default();
    let mut parts: BTreeMap<u64, u64> = BTreeMap::new();
    for record in &history.records {
        *parts.entry(record.request).or_default() += 1;
    }
    // Of each denied request how many parts had room, and what shows it.
    let mut had_room: BTreeMap<u64, (u64, Violation)> = BTreeMap::new();
    for (key, records) in history.by_key() {
        let mut spends: Vec<&Record> = records
            .into_iter()
            .filter(|record| record.act == Operation::Spend)
            .collect();
        for (request, why) in with_room(&spends, bucket, held, &mut looked) {
            let broken = Violation::new(Promise::NoFalseDenial, key, why);
            had_room.entry(request).or_insert((0, broken)).0 += 1;
        }
        let is_alone = |record: &Record| parts.get(&record.request) == Some(&1);
        after_waiting(key, &mut spends, is_alone, &mut looked)?;
    }
    // One limit without room is enough to deny all.
    for (request, (count, broken)) in had_room {
        if parts.get(&request) == Some(&count) {
            return Err(broken);
        }
    }
    Ok(looked)
}

/// The denials at which there was room, by their requests.
fn with_room(
    spends: &[&Record],
    bucket: Bucket,
    held: u64,
    looked: &mut Denials,
) -> Vec<(u64, String)> {
    // By answers: the latest state that those which were answered before an instant can have left.
    let mut answered: Vec<&Record> = charged(spends);
    answered.sort_by_key(|record| record.completed);
    let mut latest = Vec::with_capacity(answered.len());
    let (mut state, mut sum) = (0_i128, 0_i128);
    for record in &answered {
        let price = bucket.price(record.cost);
        state = state.max(i128::from(record.completed)) + price;
        sum += price;
        latest.push((record.completed, state, sum));
    }
    let mut asked: Vec<(u64, i128)> = Vec::with_capacity(answered.len());
    answered.sort_by_key(|record| record.invoked);
    let mut sum = 0_i128;
    for record in &answered {
        sum += bucket.price(record.cost);
        asked.push((record.invoked, sum));
    }
    let before = |instant: u64| {
        let count = latest.partition_point(|(completed, ..)| *completed <= instant);
        let found = count.checked_sub(1).and_then(|index| latest.get(index));
        found.map_or((0, 0), |(_, state, sum)| (*state, *sum))
    };
    let asked_by = |instant: u64| {
        let count = asked.partition_point(|(invoked, _)| *invoked <= instant);
        let found = count.checked_sub(1).and_then(|index| asked.get(index));
        found.map_or(0, |(_, sum)| *sum)
    };
    let room = bucket.capacity() - bucket.price(held);
    let mut found = Vec::new();
    for record in spends {
        if record.verdict != RecordedVerdict::Denied
            || record.is_degraded
            || record.cost > bucket.burst
        {
            continue;
        }
        looked.denied += 1;
        let (state, done) = before(record.invoked);
        let at_once = asked_by(record.completed) - done;
        let debt = (state - i128::from(record.invoked)).max(0) + at_once;
        if debt + bucket.price(record.cost) <= room {
            let why = format!(
                "denied at {} with a debt of at most {debt} of {room} ns",
                record.invoked
            );
            found.push((record.request, why));
        }
    }
    found
}

/// Whether those who came back after their wait were admitted, if nobody else had come and no other limit was asked.
fn after_waiting(
    key: &str,
    spends: &mut [&Record],
    is_alone: impl Fn(&Record) -> bool,
    looked: &mut Denials,
) -> Result<(), Violation> {
    spends.sort_by_key(|record| record.invoked);
    // The last answer of all that were asked before.
    let mut quiet_since = 0;
    for pair in spends.windows(2) {
        let [first, second] = pair else { continue };
        let was_alone = quiet_since <= first.invoked && first.completed <= second.invoked;
        quiet_since = quiet_since.max(first.completed);
        let is_by_the_store = !first.is_degraded && !second.is_degraded;
        let (RecordedVerdict::Denied, Some(wait)) = (first.verdict, first.retry_after) else {
            continue;
        };
        let has_waited = second.invoked >= first.completed.saturating_add(wait);
        let is_comparable = is_by_the_store && is_alone(first) && is_alone(second);
        if was_alone && is_comparable && has_waited && second.cost <= first.cost {
            looked.returned += 1;
            if second.verdict == RecordedVerdict::Denied {
                let why = format!("denied at {} after the wait of {wait} ns", second.invoked);
                return Err(Violation::new(Promise::NoFalseDenial, key, why));
            }
        }
    }
    Ok(())
}

fn charged<'a>(spends: &[&'a Record]) -> Vec<&'a Record> {
    let spends = spends.iter().copied();
    spends.filter(|record| record.may_have_charged()).collect()
}
