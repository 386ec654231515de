//! Logs, leases and reservations in a snapshot: each box whole, and which reservations were still open later.
//!
//! A box is its key, the quota that it is judged by, its state and its records. A shelf is copied under its lock and
//! written after, so that nobody waits for the disk. Must not know: slots, what a reservation was charged to.

use std::io::{self, Read, Write};

use tollgate_core::concurrency::{Lease, LeaseId};
use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::reservation::{ReservationId, ReservationLedger, ReservationRecord};
use tollgate_core::sliding_log::{Log, LogEntry};
use tollgate_core::{Concurrency, MAX_CAPACITY, Nanos, Receipt, SlidingLog, Timestamp};

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::limits_and_overflow::limit;
use super::{SnapshotError, to_u64};
use crate::memory::hash::StateHash;
use crate::memory::variable_state::{VariableState, VariableStates};

/// What a box begins with, and what stands for none in its place.
const BOX: u64 = 1;
const END: u64 = 0;
/// What a quota and a state are.
const NONE: u64 = 0;
const LOG: u64 = 1;
const LEASES: u64 = 2;

/// Every box that has not expired.
pub(super) fn write(
    out: &mut ChecksumWriter<impl Write>,
    shelves: &VariableStates,
    now: Timestamp,
) -> io::Result<()> {
    let terms = shelves.reservation_options(Nanos::ZERO);
    let mut words = Vec::new();
    for shelf in shelves.shards() {
        shelf
            .live(now, &terms)
            .for_each(|stored| copy(stored, &mut words));
        drop(shelf);
        out.put_all(words.drain(..))?;
    }
    out.put(END)
}

/// The names of all reservations that are open and whose charge is in a table.
pub(super) fn write_open(
    out: &mut ChecksumWriter<impl Write>,
    shelves: &VariableStates,
    now: Timestamp,
) -> io::Result<()> {
    let terms = shelves.reservation_options(Nanos::ZERO);
    let mut words = Vec::new();
    for shelf in shelves.shards() {
        let elsewhere = |stored: &&VariableState| stored.limit.is_none();
        for stored in shelf.live(now, &terms).filter(elsewhere) {
            let open = || stored.ledger.iter().filter(|record| record.is_open);
            words.extend(key_of(stored));
            words.push(to_u64(open().count()));
            words.extend(open().flat_map(|record| halves(record.id.0)));
        }
        drop(shelf);
        out.put_all(words.drain(..))?;
    }
    out.put(END)
}

/// Reads no more than threads could have put on the shelves.
pub(super) fn read(
    input: &mut ChecksumReader<impl Read>,
    shelves: &VariableStates,
) -> Result<(), SnapshotError> {
    while let Some(place) = next_key(input)? {
        let quota = read_quota(input)?;
        let state = read_state(input, shelves)?;
        let entries = state.entries();
        let count = input.take_count(|count| shelves.can_hold(entries.saturating_add(count)))?;
        // Where the charge is in a table, nothing is open until it is known to have been so after the table was read.
        let ledger = read_records(input, count, quota.is_some())?;
        if !shelves.restore(place, quota, state, ledger) {
            return Err(SnapshotError::Corrupted);
        }
    }
    Ok(())
}

/// Opens the reservations again that were open before the tables and after.
pub(super) fn read_open(
    input: &mut ChecksumReader<impl Read>,
    shelves: &VariableStates,
) -> Result<(), SnapshotError> {
    while let Some(place) = next_key(input)? {
        let count = input.take()?;
        let mut shelf = shelves.lock(shelves.index(place));
        let mut stored = shelf.as_mut().and_then(|shelf| shelf.get(place));
        let ledger = stored.as_ref().map(|stored| stored.ledger.iter().copied());
        let mut records: Vec<ReservationRecord> = ledger.into_iter().flatten().collect();
        for _ in 0..count {
            let id = ReservationId(whole(input.take_all()?));
            // One that was made after the boxes were saved is not known here and stays so.
            if let Some(record) = records.iter_mut().find(|record| record.id == id) {
                record.is_open = true;
            }
        }
        if let Some(stored) = &mut stored {
            stored.ledger = records.into_iter().collect();
        }
    }
    Ok(())
}

fn copy(stored: &VariableState, words: &mut Vec<u64>) {
    words.extend(key_of(stored));
    match stored.limit.as_ref().map(Limit::quota) {
        Some(Quota::SlidingLog(quota)) => {
            let blocks = [quota.limit_blocks(), quota.saturation_blocks()];
            let times = [quota.window(), quota.retention()].map(Nanos::as_nanos);
            words.extend([LOG, quota.block()]);
            words.extend(blocks);
            words.extend(times);
        }
        Some(Quota::Concurrency(quota)) => {
            words.extend([LEASES, quota.limit(), quota.lease_duration().as_nanos()]);
        }
        _ => words.push(NONE),
    }
    match &stored.state {
        State::Log(log) => {
            words.extend([LOG, to_u64(log.len())]);
            words.extend(log.entries().flat_map(|entry| [entry.at, entry.blocks]));
        }
        State::Leases(leases) => {
            words.extend([LEASES, to_u64(leases.len())]);
            for lease in leases.iter() {
                words.extend(halves(lease.id.0));
                words.extend([lease.weight, lease.expires]);
            }
        }
        _ => words.push(NONE),
    }
    words.push(to_u64(stored.ledger.len()));
    for record in stored.ledger.iter() {
        let Receipt { cost, at, mark } = record.receipt;
        words.extend(halves(record.id.0));
        words.extend([cost, at.as_nanos(), mark, record.expires.as_nanos()]);
        words.push(u64::from(record.is_open));
    }
}

fn key_of(stored: &VariableState) -> [u64; 3] {
    let limit = stored.hash.limit().0.get();
    [BOX, stored.hash.bits(), u64::from(limit)]
}

fn next_key(input: &mut ChecksumReader<impl Read>) -> Result<Option<StateHash>, SnapshotError> {
    if !input.take_flag()? {
        return Ok(None);
    }
    let [hash, number] = input.take_all()?;
    Ok(Some(StateHash::from_parts(hash, limit(number)?)))
}

/// Only quotas that can be built are believed.
fn read_quota(input: &mut ChecksumReader<impl Read>) -> Result<Option<Limit>, SnapshotError> {
    let built = match input.take()? {
        NONE => return Ok(None),
        LOG => {
            let [block, limit, saturation, window, retention] = input.take_all()?;
            log_quota(block, [limit, saturation], [window, retention]).map(Limit::from)
        }
        LEASES => {
            let [limit, lease] = input.take_all()?;
            let quota = Concurrency::new(limit, Nanos::from_nanos(lease));
            quota.ok().map(Limit::from)
        }
        _ => None,
    };
    built.map(Some).ok_or(SnapshotError::Corrupted)
}

fn log_quota(block: u64, [limit, saturation]: [u64; 2], times: [u64; 2]) -> Option<SlidingLog> {
    // Windows are rounded up to microseconds, which may be beyond the longest.
    let [window, retention] = times.map(|time| Nanos::from_nanos(time).min(MAX_CAPACITY));
    let units = |blocks: u64| blocks.saturating_mul(block);
    let overdraft = units(saturation.saturating_sub(limit));
    let quota = SlidingLog::builder(units(limit), window).block(block);
    let longest = SlidingLog::builder(0, retention).build().ok()?;
    let quota = quota.overdraft(overdraft).build().ok()?;
    Some(quota.sharing_state_with(&longest))
}

fn read_state(
    input: &mut ChecksumReader<impl Read>,
    shelves: &VariableStates,
) -> Result<State, SnapshotError> {
    let kind = input.take()?;
    if kind == NONE {
        return Ok(State::Empty);
    }
    let count = input.take_count(|count| shelves.can_hold(count))?;
    match kind {
        LOG => read_log(input, count).map(State::Log),
        LEASES => {
            let mut leases: Vec<Lease> = Vec::new();
            for _ in 0..count {
                let id = LeaseId(whole(input.take_all()?));
                let [weight, expires] = input.take_all()?;
                // In order, or putting them in order would take long.
                if leases.last().is_some_and(|last| last.expires > expires) {
                    return Err(SnapshotError::Corrupted);
                }
                leases.push(Lease {
                    id,
                    weight,
                    expires,
                });
            }
            Ok(State::Leases(leases.into_iter().collect()))
        }
        _ => Err(SnapshotError::Corrupted),
    }
}

fn read_log(input: &mut ChecksumReader<impl Read>, count: usize) -> Result<Log, SnapshotError> {
    let mut entries: Vec<LogEntry> = Vec::new();
    for _ in 0..count {
        let [at, blocks] = input.take_all()?;
        if blocks == 0 || entries.last().is_some_and(|last| last.at >= at) {
            return Err(SnapshotError::Corrupted);
        }
        entries.push(LogEntry { at, blocks });
    }
    Ok(entries.into_iter().collect())
}

fn read_records(
    input: &mut ChecksumReader<impl Read>,
    count: usize,
    may_be_open: bool,
) -> Result<ReservationLedger, SnapshotError> {
    let mut records = Vec::new();
    for _ in 0..count {
        let id = ReservationId(whole(input.take_all()?));
        let [cost, at, mark, expires] = input.take_all()?;
        let is_open = input.take_flag()? && may_be_open;
        let [at, expires] = [at, expires].map(Timestamp::from_nanos);
        records.push(ReservationRecord {
            id,
            receipt: Receipt { cost, at, mark },
            expires,
            is_open,
        });
    }
    Ok(records.into_iter().collect())
}

/// The high half and the low.
fn halves(name: u128) -> [u64; 2] {
    [name >> 64, name & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

fn whole([high, low]: [u64; 2]) -> u128 {
    (u128::from(high) << 64) | u128::from(low)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::contract::{IdentifiedLimit, LimitId, Op, QuotaCheck, ReplyNote};
    use crate::key::StoreKey;
    use crate::memory::MemoryStore;
    use crate::memory::limit_usage::LimitUsages;
    use std::num::NonZeroU16;
    use std::sync::Arc;
    use tollgate_core::{Rate, TokenBucket};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn store() -> MemoryStore<ManualClock> {
        MemoryStore::with_clock(10, ManualClock::at(NOW)).unwrap()
    }

    fn ask(store: &MemoryStore<ManualClock>, op: Op) -> ReplyNote {
        let bucket = TokenBucket::builder(Rate::per_second(10)).build().unwrap();
        let ruled = &IdentifiedLimit {
            id: LimitId(NonZeroU16::MIN),
            limit: bucket.into(),
        };
        let key = StoreKey::new(b"a").unwrap();
        store
            .decide_array([QuotaCheck {
                key,
                limit: ruled,
                op,
            }])
            .unwrap()
            .1[0]
            .note
    }

    fn reserve(id: u128) -> Op {
        Op::Reserve {
            id: ReservationId(id),
            cost: 1,
            hold: Nanos::MINUTE,
        }
    }

    /// What is saved if something happens between the boxes and the rest.
    fn saved_around(store: &MemoryStore<ManualClock>, between: impl FnOnce()) -> Vec<u8> {
        let mut out = ChecksumWriter::new(Vec::new());
        write(&mut out, &store.variable_states, NOW).unwrap();
        between();
        write_open(&mut out, &store.variable_states, NOW).unwrap();
        out.finish().unwrap()
    }

    /// A settled reservation that was saved as open next to a bucket that had its refund would be given back once more; one
    /// that was made meanwhile might not be in the bucket yet.
    #[test]
    fn a_reservation_that_is_made_or_closed_while_saving_gives_nothing_back_after_a_restart() {
        let (store, again) = (store(), store());
        for id in [1, 2] {
            assert_eq!(ask(&store, reserve(id)), ReplyNote::Plain);
        }
        let bytes = saved_around(&store, || {
            assert_eq!(
                ask(&store, Op::CancelReserved(ReservationId(1))),
                ReplyNote::Plain
            );
            assert_eq!(ask(&store, reserve(3)), ReplyNote::Plain);
        });
        let mut input = ChecksumReader::new(bytes.as_slice());
        read(&mut input, &again.variable_states).unwrap();
        read_open(&mut input, &again.variable_states).unwrap();
        input.finish().unwrap();
        let place = |store: &MemoryStore<ManualClock>| {
            let key = StoreKey::new(b"a").unwrap();
            store.hash_state(&key, LimitId(NonZeroU16::MIN))
        };
        let was = place(&store);
        let mut shelf = again
            .variable_states
            .lock(again.variable_states.index(was))
            .unwrap();
        let records = shelf.get(was).unwrap().ledger.iter();
        let known: Vec<_> = records
            .map(|record| (record.id.0, record.is_open))
            .collect();
        assert_eq!(known, [(1, false), (2, true)]);
    }

    #[test]
    fn a_quota_is_the_same_after_reading_it_as_it_was_written() {
        let shelves = VariableStates::new(100, 1 << 20, Arc::new(LimitUsages::new()));
        let long = SlidingLog::builder(1, MAX_CAPACITY).build().unwrap();
        let logs = [
            SlidingLog::builder(0, Nanos::from_nanos(1)),
            SlidingLog::builder(10_000, MAX_CAPACITY),
            SlidingLog::builder(u64::MAX, Nanos::SECOND).block(u64::MAX / 7),
            SlidingLog::builder(0, Nanos::MINUTE)
                .overdraft(u64::MAX)
                .block(u64::MAX / 3),
            SlidingLog::builder(70, Nanos::MINUTE)
                .overdraft(15)
                .block(7),
        ];
        let logs = logs.map(|log| log.build().unwrap());
        let sharing = logs.map(|log| log.sharing_state_with(&long));
        let gate = Concurrency::new(65_536, MAX_CAPACITY).unwrap();
        let logs = logs.into_iter().chain(sharing).map(Limit::from);
        let limits: Vec<Limit> = logs.chain([gate.into()]).collect();
        for (hash, limit) in (0..).zip(&limits) {
            let place = StateHash::from_parts(hash, LimitId(NonZeroU16::MIN));
            let entry = LogEntry { at: 1, blocks: 1 };
            let state = State::Log(std::iter::once(entry).collect());
            assert!(shelves.restore(place, Some(*limit), state, ReservationLedger::default()));
            let mut words = Vec::new();
            let mut shelf = shelves.lock(shelves.index(place)).unwrap();
            copy(shelf.get(place).unwrap(), &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut input = ChecksumReader::new(bytes.as_slice());
            assert_eq!(next_key(&mut input).unwrap(), Some(place));
            assert_eq!(read_quota(&mut input).unwrap(), Some(*limit));
        }
    }
}
