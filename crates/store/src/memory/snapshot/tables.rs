//! The slots of a table in a snapshot: index, tag and state of each live slot, an end mark, and one flag per group.
//!
//! Must not know: what tags and states mean beyond their priority.

use std::io::{self, Read, Write};

use tollgate_core::Timestamp;

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::{SnapshotError, to_u64};
use crate::memory::eviction_priority::{EvictionPriorities, EvictionPriority};
use crate::memory::hash::limit_of;
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
        let (tag, state) = {
            let guard = slot.lock();
            (guard.tag(), guard.state())
        };
        if tag != 0 && priorities.priority_of(limit_of(tag), state, now) != EvictionPriority::Free {
            out.put_all([to_u64(number), tag])?;
            out.put_all(state)?;
        }
    }
    out.put(END)?;
    // After the slots: a key found in its alternate group has marked its primary group by then.
    (0..table.groups()).try_for_each(|group| out.put(u64::from(table.has_spilled(group))))
}

/// Slots are in ascending order, so the list is bounded by the table.
pub(super) fn read<const W: usize>(
    input: &mut ChecksumReader<impl Read>,
    table: &SlotTable<W>,
) -> Result<(), SnapshotError> {
    let mut least = 0;
    loop {
        let number = input.take()?;
        if number == END {
            break;
        }
        let tag = input.take()?;
        let state = input.take_all::<W>()?;
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        let slot = table.slot(index).filter(|_| index >= least);
        let slot = slot.filter(|_| limit_of(tag) != 0);
        slot.ok_or(SnapshotError::Corrupted)?
            .lock()
            .insert(tag, state);
        least = index.saturating_add(1);
    }
    for group in 0..table.groups() {
        if input.take_flag()? {
            table.mark_spilled(group);
        }
    }
    Ok(())
}
