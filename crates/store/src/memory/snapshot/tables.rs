//! The slots of a table in a snapshot: number, tag and state of each that is live, an end mark, and one flag a group.
//!
//! Must not know: what tags and states mean beyond their worth.

use std::io::{self, Read, Write};

use tollgate_core::Timestamp;

use super::words::{Reader, Writer};
use super::{SnapshotError, wide};
use crate::memory::eviction_priority::{EvictionPriorities, EvictionPriority};
use crate::memory::hash::limit_of;
use crate::memory::table::Table;

/// No slot has this number.
const END: u64 = u64::MAX;

pub(super) fn write<const W: usize>(
    out: &mut Writer<impl Write>,
    table: &Table<W>,
    worths: &EvictionPriorities,
    now: Timestamp,
) -> io::Result<()> {
    for number in 0..table.slots() {
        let Some(slot) = table.slot(number).filter(|slot| slot.tag() != 0) else {
            continue;
        };
        let (tag, state) = {
            let owned = slot.take();
            (owned.tag(), owned.state())
        };
        if tag != 0 && worths.of(limit_of(tag), state, now) != EvictionPriority::Nothing {
            out.put_all([wide(number), tag])?;
            out.put_all(state)?;
        }
    }
    out.put(END)?;
    // After the slots: a key that was seen in its refuge has told its home by then.
    (0..table.groups()).try_for_each(|group| out.put(u64::from(table.has_spilled(group))))
}

/// Reads no more than the table has room for: slots come in ascending order.
pub(super) fn read<const W: usize>(
    input: &mut Reader<impl Read>,
    table: &Table<W>,
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
        slot.ok_or(SnapshotError::Damaged)?.take().house(tag, state);
        least = index.saturating_add(1);
    }
    for group in 0..table.groups() {
        if input.take_flag()? {
            table.spill(group);
        }
    }
    Ok(())
}
