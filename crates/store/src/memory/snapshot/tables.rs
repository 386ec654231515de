//! The slots of a table in a snapshot: number, tag and state of each that is live, an end mark, and one flag a group.
//!
//! Must not know: what tags and states mean beyond their worth.

use std::io::{self, Read, Write};

use tollgate_core::Timestamp;

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::{SnapshotError, to_u64};
use crate::memory::eviction_priority::{EvictionPriorities, EvictionPriority};
use crate::memory::hash::limit_of;
use crate::memory::limit_usage::{LimitUsages, Table};
use crate::memory::slot_table::SlotTable;

/// No slot has this number.
const END: u64 = u64::MAX;

pub(super) fn write<const W: usize>(
    out: &mut ChecksumWriter<impl Write>,
    table: &SlotTable<W>,
    worths: &EvictionPriorities,
    now: Timestamp,
) -> io::Result<()> {
    for number in 0..table.slots() {
        let Some(slot) = table.slot(number).filter(|slot| slot.tag() != 0) else {
            continue;
        };
        let (tag, state) = {
            let owned = slot.lock();
            (owned.tag(), owned.state())
        };
        if tag != 0 && worths.priority_of(limit_of(tag), state, now) != EvictionPriority::Free {
            out.put_all([to_u64(number), tag])?;
            out.put_all(state)?;
        }
    }
    out.put(END)?;
    // After the slots: a key that was seen in its refuge has told its home by then.
    (0..table.groups()).try_for_each(|group| out.put(u64::from(table.has_spilled(group))))
}

/// Reads no more than the table has room for: slots come in ascending order.
pub(super) fn read<const W: usize>(
    input: &mut ChecksumReader<impl Read>,
    table: &SlotTable<W>,
    usages: &LimitUsages,
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
        usages.add(limit_of(tag), Table::of_words(W), 1);
        least = index.saturating_add(1);
    }
    for group in 0..table.groups() {
        if input.take_flag()? {
            table.mark_spilled(group);
        }
    }
    Ok(())
}
