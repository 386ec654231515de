//! The limits' usage scales and the overflow sketch in a snapshot.
//!
//! Must not know: tables, variable states, what a usage scale measures.

use std::io::{self, Read, Write};
use std::num::NonZeroU16;

use tollgate_core::Timestamp;
use tollgate_core::limit::UsageScale;

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::{SnapshotError, to_u64};
use crate::contract::LimitId;
use crate::memory::eviction_priority::{EvictionPriorities, MAX_TIERS};
use crate::memory::overflow::OverflowSketch;

/// Ends the list of cells: no cell has this index.
const END: u64 = u64::MAX;

/// Writes id and usage scales of each limit. Zero, which is no limit id, ends the list.
pub(super) fn write_limits(
    out: &mut ChecksumWriter<impl Write>,
    priorities: &EvictionPriorities,
) -> io::Result<()> {
    for (id, scales) in priorities.all() {
        out.put_all([u64::from(id), to_u64(scales.len())])?;
        for scale in scales {
            out.put_all([scale.full, scale.denied_above, scale.tail])?;
        }
    }
    out.put(0)
}

/// Ids are in ascending order, so the list is bounded.
pub(super) fn read_limits(
    input: &mut ChecksumReader<impl Read>,
    priorities: &EvictionPriorities,
) -> Result<(), SnapshotError> {
    let mut last = None;
    loop {
        let number = input.take()?;
        if number == 0 {
            return Ok(());
        }
        let id = limit(number)?;
        let count = input.take_count(|count| (1..=MAX_TIERS).contains(&count))?;
        if last.is_some_and(|last| id <= last) {
            return Err(SnapshotError::Corrupted);
        }
        last = Some(id);
        let mut scales = Vec::new();
        for _ in 0..count {
            let [full, denied_above, tail] = input.take_all()?;
            scales.push(UsageScale {
                full,
                denied_above,
                tail,
            });
        }
        priorities.restore(id, scales);
    }
}

/// Writes index and value of each cell with debt.
pub(super) fn write_overflow(
    out: &mut ChecksumWriter<impl Write>,
    overflow: &OverflowSketch,
    now: Timestamp,
) -> io::Result<()> {
    for (index, tat) in overflow.indebted_cells(now) {
        out.put_all([to_u64(index), tat])?;
    }
    out.put(END)
}

pub(super) fn read_overflow(
    input: &mut ChecksumReader<impl Read>,
    overflow: &OverflowSketch,
) -> Result<(), SnapshotError> {
    let mut least = 0;
    loop {
        let number = input.take()?;
        if number == END {
            return Ok(());
        }
        let tat = input.take()?;
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if index < least || !overflow.raise(index, tat) {
            return Err(SnapshotError::Corrupted);
        }
        least = index.saturating_add(1);
    }
}

/// The limit with this id.
pub(super) fn limit(number: u64) -> Result<LimitId, SnapshotError> {
    let number = u16::try_from(number).ok().and_then(NonZeroU16::new);
    number.map(LimitId).ok_or(SnapshotError::Corrupted)
}
