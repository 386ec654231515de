//! Logs, leases and reservations in a snapshot: each variable state, and afterwards which reservations are still open.
//!
//! A variable state is written as its hash, its limit's quota, its state and its reservations. Each shard is copied
//! under its lock and written after unlocking, so that no decision waits for the disk. Must not know: slots, which
//! state a reservation charged.

use std::io::{self, Read, Write};

use tollgate_core::concurrency::{Lease, LeaseId};
use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::reservation::{ReservationId, ReservationLedger, ReservationRecord};
use tollgate_core::sliding_log::{Log, LogEntry};
use tollgate_core::{Concurrency, MAX_CAPACITY, Nanos, Receipt, SlidingLog, Timestamp};

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::limits_and_overflow::limit;
use super::{SnapshotError, SnapshotHeader, to_u64};
use crate::memory::MemoryStore;
use crate::memory::hash::StateHash;
use crate::memory::variable_state::{VariableState, VariableStates};

/// The marker before each variable state, and the one that ends the list.
const STATE: u64 = 1;
const END: u64 = 0;
/// Codes for the kind of a quota and of a state.
const NONE: u64 = 0;
const LOG: u64 = 1;
const LEASES: u64 = 2;

/// Writes every variable state that has not expired.
pub(super) fn write(
    out: &mut ChecksumWriter<impl Write>,
    states: &VariableStates,
    now: Timestamp,
) -> io::Result<()> {
    let options = states.reservation_options(Nanos::ZERO);
    let mut words = Vec::new();
    for shard in states.shards() {
        shard
            .live(now, &options)
            .for_each(|entry| copy(entry, &mut words));
        drop(shard);
        out.put_all(words.drain(..))?;
    }
    out.put(END)
}

/// Writes the ids of all open reservations whose charge is in a table.
pub(super) fn write_open(
    out: &mut ChecksumWriter<impl Write>,
    states: &VariableStates,
    now: Timestamp,
) -> io::Result<()> {
    let options = states.reservation_options(Nanos::ZERO);
    let mut words = Vec::new();
    for shard in states.shards() {
        let in_table = |entry: &&VariableState| entry.limit.is_none();
        for entry in shard.live(now, &options).filter(in_table) {
            let open = || entry.ledger.iter().filter(|record| record.is_open);
            words.extend(hash_words(entry));
            words.push(to_u64(open().count()));
            words.extend(open().flat_map(|record| split_id(record.id.0)));
        }
        drop(shard);
        out.put_all(words.drain(..))?;
    }
    out.put(END)
}

/// Reads at most as many states as the store could hold. A store of another size takes what fits; debts of others go into the
/// sketches of their limits.
pub(super) fn read<C>(
    input: &mut ChecksumReader<impl Read>,
    header: &SnapshotHeader,
    store: &MemoryStore<C>,
) -> Result<(), SnapshotError> {
    let states = store.variable_states();
    let can_hold = |entries| !header.is_same_size || states.can_hold(entries);
    while let Some(hash) = next_hash(input)? {
        let quota = read_quota(input)?;
        let state = read_state(input, can_hold)?;
        let entries = state.entries();
        let count = input.take_count(|count| can_hold(entries.saturating_add(count)))?;
        // If the charge is in a table, the reservation is closed until `read_open` confirms that it was still open
        // after the tables were written.
        let ledger = read_records(input, count, quota.is_some())?;
        if header.is_same_size {
            if !states.restore(hash, quota, state, ledger) {
                return Err(SnapshotError::Corrupted);
            }
            continue;
        }
        for (tag, debt) in states.migrate(hash, quota, state, ledger, header.now) {
            let mut sketches = store.overflow().lock();
            sketches.add_debt(store.usages(), tag, debt, header.now);
        }
    }
    Ok(())
}

/// Reopens the reservations that were open both before and after the tables were written.
pub(super) fn read_open(
    input: &mut ChecksumReader<impl Read>,
    states: &VariableStates,
) -> Result<(), SnapshotError> {
    while let Some(hash) = next_hash(input)? {
        let count = input.take()?;
        let mut shard = states.lock(states.index(hash));
        let mut entry = shard.as_mut().and_then(|shard| shard.get(hash));
        let ledger = entry.as_ref().map(|entry| entry.ledger.iter().copied());
        let mut records: Vec<ReservationRecord> = ledger.into_iter().flatten().collect();
        for _ in 0..count {
            let id = ReservationId(join_id(input.take_all()?));
            // A reservation made after the variable states were written is unknown here, and stays so.
            if let Some(record) = records.iter_mut().find(|record| record.id == id) {
                record.is_open = true;
            }
        }
        if let Some(entry) = &mut entry {
            entry.ledger = records.into_iter().collect();
        }
    }
    Ok(())
}

fn copy(entry: &VariableState, words: &mut Vec<u64>) {
    words.extend(hash_words(entry));
    match entry.limit.as_ref().map(Limit::quota) {
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
    match &entry.state {
        State::Log(log) => {
            words.extend([LOG, to_u64(log.len())]);
            words.extend(log.entries().flat_map(|entry| [entry.at, entry.blocks]));
        }
        State::Leases(leases) => {
            words.extend([LEASES, to_u64(leases.len())]);
            for lease in leases.iter() {
                words.extend(split_id(lease.id.0));
                words.extend([lease.weight, lease.expires]);
            }
        }
        _ => words.push(NONE),
    }
    words.push(to_u64(entry.ledger.len()));
    for record in entry.ledger.iter() {
        let Receipt { cost, at, mark } = record.receipt;
        words.extend(split_id(record.id.0));
        words.extend([cost, at.as_nanos(), mark, record.expires.as_nanos()]);
        words.push(u64::from(record.is_open));
    }
}

fn hash_words(entry: &VariableState) -> [u64; 3] {
    let limit = entry.hash.limit().0.get();
    [STATE, entry.hash.bits(), u64::from(limit)]
}

fn next_hash(input: &mut ChecksumReader<impl Read>) -> Result<Option<StateHash>, SnapshotError> {
    if !input.take_flag()? {
        return Ok(None);
    }
    let [hash, number] = input.take_all()?;
    Ok(Some(StateHash::from_parts(hash, limit(number)?)))
}

/// Accepts only quotas that can be built.
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
    // Windows are rounded up to microseconds, which may exceed the maximum.
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
    can_hold: impl Fn(usize) -> bool,
) -> Result<State, SnapshotError> {
    let kind = input.take()?;
    if kind == NONE {
        return Ok(State::Empty);
    }
    let count = input.take_count(can_hold)?;
    match kind {
        LOG => read_log(input, count).map(State::Log),
        LEASES => {
            let mut leases: Vec<Lease> = Vec::new();
            for _ in 0..count {
                let id = LeaseId(join_id(input.take_all()?));
                let [weight, expires] = input.take_all()?;
                // Reject unsorted leases: sorting them would be slow.
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
        let id = ReservationId(join_id(input.take_all()?));
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

/// The upper and the lower half.
fn split_id(name: u128) -> [u64; 2] {
    [name >> 64, name & u128::from(u64::MAX)].map(|half| u64::try_from(half).unwrap_or(0))
}

fn join_id([high, low]: [u64; 2]) -> u128 {
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

    /// A snapshot during which `between` runs after the variable states were written.
    fn saved_around(store: &MemoryStore<ManualClock>, between: impl FnOnce()) -> Vec<u8> {
        let mut out = ChecksumWriter::new(Vec::new());
        write(&mut out, &store.variable_states, NOW).unwrap();
        between();
        write_open(&mut out, &store.variable_states, NOW).unwrap();
        out.finish().unwrap()
    }

    /// Regression: a reservation settled during the save was saved as open, so it could be refunded again. A
    /// reservation made during the save might not be in the bucket yet.
    #[test]
    fn a_reservation_made_or_closed_while_saving_refunds_nothing_after_a_restart() {
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
        let header = SnapshotHeader {
            version: 4,
            table_groups: [0; 2],
            is_same_size: true,
            now: NOW,
        };
        read(&mut input, &header, &again).unwrap();
        read_open(&mut input, &again.variable_states).unwrap();
        input.finish().unwrap();
        let hash = |store: &MemoryStore<ManualClock>| {
            let key = StoreKey::new(b"a").unwrap();
            store.hash_state(&key, LimitId(NonZeroU16::MIN))
        };
        let before = hash(&store);
        let mut shard = again
            .variable_states
            .lock(again.variable_states.index(before))
            .unwrap();
        let records = shard.get(before).unwrap().ledger.iter();
        let known: Vec<_> = records
            .map(|record| (record.id.0, record.is_open))
            .collect();
        assert_eq!(known, [(1, false), (2, true)]);
    }

    #[test]
    fn a_quota_is_the_same_after_reading_it_as_it_was_written() {
        let states = VariableStates::new(100, 1 << 20, Arc::new(LimitUsages::new()));
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
            let hash = StateHash::from_parts(hash, LimitId(NonZeroU16::MIN));
            let entry = LogEntry { at: 1, blocks: 1 };
            let state = State::Log(std::iter::once(entry).collect());
            assert!(states.restore(hash, Some(*limit), state, ReservationLedger::default()));
            let mut words = Vec::new();
            let mut shard = states.lock(states.index(hash)).unwrap();
            copy(shard.get(hash).unwrap(), &mut words);
            let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            let mut input = ChecksumReader::new(bytes.as_slice());
            assert_eq!(next_hash(&mut input).unwrap(), Some(hash));
            assert_eq!(read_quota(&mut input).unwrap(), Some(*limit));
        }
    }
}
