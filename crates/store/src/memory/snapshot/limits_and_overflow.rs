//! The limits' usage scales and the overflow sketch in a snapshot.
//!
//! Must not know: tables, variable states, what a usage scale measures.

use std::io::{self, Read, Write};
use std::num::NonZeroU16;

use tollgate_core::Timestamp;
use tollgate_core::token_bucket::Tat;

use super::checksummed::{ChecksumReader, ChecksumWriter};
use super::{SnapshotError, to_u64};
use crate::contract::LimitId;
use crate::memory::eviction_priority::{EvictionPriorities, MAX_TIERS, TierScale};
use crate::memory::limit_usage::LimitUsages;
use crate::memory::overflow::OverflowSketches;

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
            out.put_all([scale.interval, scale.spare])?;
        }
    }
    out.put(0)
}

/// Ids are in ascending order, so the list is bounded.
pub(super) fn read_limits(
    input: &mut ChecksumReader<impl Read>,
    priorities: &EvictionPriorities,
    has_stand_in: bool,
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
            let [interval, spare] = if has_stand_in {
                input.take_all()?
            } else {
                [0, 0]
            };
            scales.push(TierScale {
                full,
                denied_above,
                tail,
                interval,
                spare,
            });
        }
        priorities.restore(id, scales);
    }
}

/// For each sketch that still owes something: its limits, ended by zero, and number and value of each such cell.
pub(super) fn write_overflow(
    out: &mut ChecksumWriter<impl Write>,
    overflow: &OverflowSketches,
    now: Timestamp,
) -> io::Result<()> {
    for (limits, cells) in overflow.indebted_cells(now) {
        limits
            .iter()
            .try_for_each(|limit| out.put(u64::from(*limit)))?;
        out.put(0)?;
        for (index, tat) in cells {
            out.put_all([to_u64(index), tat])?;
        }
        out.put(END)?;
    }
    out.put(END)
}

pub(super) fn read_overflow(
    input: &mut ChecksumReader<impl Read>,
    overflow: &OverflowSketches,
    usages: &LimitUsages,
    now: Timestamp,
) -> Result<(), SnapshotError> {
    loop {
        let mut number = input.take()?;
        if number == END {
            return Ok(());
        }
        let mut limits = Vec::new();
        while number != 0 {
            let id = limit(number)?.0.get();
            // No limit twice, so there are no more than there are numbers.
            if limits.last().is_some_and(|last| *last == id) || limits.len() > usize::from(u16::MAX)
            {
                return Err(SnapshotError::Corrupted);
            }
            limits.push(id);
            number = input.take()?;
        }
        let cells = read_cells(input, overflow.cells())?;
        if limits.is_empty() || !overflow.lock().restore(usages, limits, &cells, now) {
            return Err(SnapshotError::Corrupted);
        }
    }
}

/// Number and value of cells, in ascending order and so no more than there are.
pub(super) fn read_cells(
    input: &mut ChecksumReader<impl Read>,
    most: usize,
) -> Result<Vec<(usize, Tat)>, SnapshotError> {
    let mut cells = Vec::new();
    let mut least = 0;
    loop {
        let number = input.take()?;
        if number == END {
            return Ok(cells);
        }
        let tat = input.take()?;
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        if index < least || index >= most {
            return Err(SnapshotError::Corrupted);
        }
        cells.push((index, tat));
        least = index.saturating_add(1);
    }
}

/// The limit with this id.
pub(super) fn limit(number: u64) -> Result<LimitId, SnapshotError> {
    let number = u16::try_from(number).ok().and_then(NonZeroU16::new);
    number.map(LimitId).ok_or(SnapshotError::Corrupted)
}
