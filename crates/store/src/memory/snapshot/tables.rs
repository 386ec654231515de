//! The slots of a table in a snapshot: index, hash, limit and state of each live slot, and the groups whose
//! keys may be in their alternate group.
//!
//! A table of the same size gets each key into the same slot. A table of another size gets the keys as if they were new; those
//! that do not fit go by the rule of eviction. Must not know: what tags and states mean beyond their priority.

use std::io::{self, Read, Write};

use tollgate_core::Timestamp;

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::limits_and_overflow::limit;
use super::{SnapshotError, SnapshotHeader, to_u64};
use crate::memory::MemoryStore;
use crate::memory::batch_check::evict;
use crate::memory::eviction_priority::{EvictionPriorities, EvictionPriority};
use crate::memory::hash::{StateHash, limit_of};
use crate::memory::limit_usage::Table;
use crate::memory::slot_table::SlotTable;

/// Ends the list: no slot has this index.
const END: u64 = u64::MAX;

pub(super) fn write<const W: usize>(
    out: &mut ChecksumWriter<impl Write>,
    table: &SlotTable<W>,
    priorities: &EvictionPriorities,
    now: Timestamp,
) -> io::Result<()> {
    for number in 0..table.slots() {
        let Some(slot) = table.slot(number).filter(|slot| slot.tag() != 0) else {
            continue;
        };
        let (hash, state) = {
            let guard = slot.lock();
            (table.whole_hash(number, guard.tag()), guard.state())
        };
        let Some(hash) = hash else {
            continue;
        };
        let limit = hash.limit().0.get();
        if priorities.priority_of(limit, state, now) != EvictionPriority::Free {
            out.put_all([to_u64(number), hash.bits(), u64::from(limit)])?;
            out.put_all(state)?;
        }
    }
    out.put(END)?;
    // After the slots: a key found in its alternate group has marked its primary group by then.
    for group in (0..table.groups()).filter(|group| table.has_spilled(*group)) {
        out.put(to_u64(group))?;
    }
    out.put(END)
}

/// Slots are in ascending order, so the list is bounded by the table that was saved.
pub(super) fn read<C, const W: usize>(
    input: &mut ChecksumReader<impl Read>,
    header: &SnapshotHeader,
    store: &MemoryStore<C>,
    table: &SlotTable<W>,
) -> Result<(), SnapshotError> {
    let mut least = 0;
    loop {
        let number = input.take()?;
        if number == END {
            break;
        }
        let hash = if header.has_hashes() {
            let [bits, number] = input.take_all()?;
            StateHash::from_parts(bits, limit(number)?)
        } else {
            let tag = input.take()?;
            StateHash::from_parts(tag, limit(u64::from(limit_of(tag)))?)
        };
        let state = input.take_all::<W>()?;
        if number < least {
            return Err(SnapshotError::Corrupted);
        }
        least = number.saturating_add(1);
        if header.is_same_size {
            let index = usize::try_from(number).unwrap_or(usize::MAX);
            if !table.restore(index, hash, state) {
                return Err(SnapshotError::Corrupted);
            }
            table.count_first_use();
            let limit = hash.limit().0.get();
            store.usages().add(limit, Table::of_words(W), 1);
        } else {
            insert(store, table, hash, state, header.now);
        }
    }
    read_spilled(input, header, table)
}

/// Groups are in ascending order, so the list is bounded by the table that was saved.
fn read_spilled<const W: usize>(
    input: &mut ChecksumReader<impl Read>,
    header: &SnapshotHeader,
    table: &SlotTable<W>,
) -> Result<(), SnapshotError> {
    let mark = |group| table.mark_spilled(usize::try_from(group).unwrap_or(usize::MAX));
    if !header.has_hashes() {
        // An earlier version wrote a flag for each group.
        for group in 0..header.groups(W) {
            if input.take_flag()? {
                mark(group);
            }
        }
        return Ok(());
    }
    let mut least = 0;
    loop {
        let group = input.take()?;
        if group == END {
            return Ok(());
        }
        if group < least || group >= header.groups(W) {
            return Err(SnapshotError::Corrupted);
        }
        least = group.saturating_add(1);
        if header.is_same_size {
            mark(group);
        }
    }
}

/// Moves a key into a table of another size.
fn insert<C, const W: usize>(
    store: &MemoryStore<C>,
    table: &SlotTable<W>,
    hash: StateHash,
    state: [u64; W],
    now: Timestamp,
) {
    let (limit, usages, priorities) = (hash.limit().0.get(), store.usages(), store.priorities());
    if priorities.priority_of(limit, state, now) == EvictionPriority::Free {
        return;
    }
    let Some(mut lock) = table.insert_lock(hash) else {
        return;
    };
    match table.make_room(hash, &mut lock, now, priorities, usages) {
        Some(mut room) => {
            evict(store, table, &room, &mut None, now);
            room.insert(hash, state);
            usages.add(limit, Table::of_words(W), 1);
        }
        None => {
            usages.count_eviction(limit);
            let debt = priorities.debt_of(limit, state, now);
            let mut sketches = store.overflow().lock();
            sketches.add_debt(usages, hash.tag(), debt, now);
        }
    }
}
