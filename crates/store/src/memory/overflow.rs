//! The overflow sketch: decides for a new key when all of its slots belong to denied keys.
//!
//! It is a sketch of bucket states, which may deny too much, never too little. Limits that are not buckets use
//! [`Limit::stricter_bucket`](tollgate_core::limit::Limit::stricter_bucket). Must not know: tables, shards.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::sketch::Sketch;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{InvalidQuota, Rate, Timestamp, TokenBucket};

/// Rows and cells of the sketch: half a mebibyte. Loom models make thousands of stores and need few cells.
const ROWS: usize = 4;
const WIDTH: usize = if cfg!(loom) { 16 } else { 1 << 14 };

/// The overflow sketch of one store, for all of its limits.
#[derive(Debug)]
pub(super) struct OverflowSketch {
    sketch: Mutex<Sketch>,
    decisions: AtomicU64,
    /// The latest instant until which any key has debt here.
    last_debt_until: AtomicU64,
}

impl OverflowSketch {
    pub(super) fn new() -> Result<Self, InvalidQuota> {
        // The sketch's own quota is not used: each limit decides by its own.
        let quota = TokenBucket::builder(Rate::per_second(0)).build()?;
        let sketch = Mutex::new(Sketch::new(quota, ROWS, WIDTH)?);
        Ok(Self {
            sketch,
            decisions: AtomicU64::new(0),
            last_debt_until: AtomicU64::new(0),
        })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Sketch> {
        self.decisions.fetch_add(1, Ordering::Relaxed);
        // A cell is raised by one assignment, so a panic leaves nothing half done.
        self.sketch.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether this key has debt here. While it has, the sketch decides for it: with a fresh state of its own the key
    /// could spend its quota again.
    pub(super) fn has_debt(&self, bits: u64, now: Timestamp) -> bool {
        if self.last_debt_until.load(Ordering::Relaxed) <= now.as_nanos() {
            return false;
        }
        let sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        sketch.tat(bits) > now.as_nanos()
    }

    /// Raises a key's debt to `tat`. Never lowers it: the cells are shared with limits whose debts reach further.
    pub(super) fn add_debt(&self, sketch: &mut Sketch, bits: u64, tat: Tat) {
        if tat > sketch.tat(bits) {
            sketch.set_tat(bits, tat);
            self.last_debt_until.fetch_max(tat, Ordering::Relaxed);
        }
    }

    pub(super) const fn cells(&self) -> usize {
        ROWS * WIDTH
    }

    /// Index and value of every cell with debt.
    pub(super) fn indebted_cells(&self, now: Timestamp) -> Vec<(usize, Tat)> {
        let now = now.as_nanos();
        if self.last_debt_until.load(Ordering::Relaxed) <= now {
            return Vec::new();
        }
        let sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        let cells = sketch.cells().iter().copied().enumerate();
        cells.filter(|(_, tat)| *tat > now).collect()
    }

    /// Raises a cell to this value. Returns whether the cell exists.
    pub(super) fn raise(&self, index: usize, tat: Tat) -> bool {
        let tat = tat.min(Timestamp::MAX.as_nanos());
        self.last_debt_until.fetch_max(tat, Ordering::Relaxed);
        let mut sketch = self.sketch.lock().unwrap_or_else(PoisonError::into_inner);
        sketch.raise_cell(index, tat)
    }

    /// The number of decisions by the sketch.
    pub(super) fn decisions(&self) -> u64 {
        self.decisions.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: a limit with a small capacity lowered a shared cell to its own largest debt.
    #[test]
    fn a_debt_is_never_lowered_by_another_limit() {
        let overflow = OverflowSketch::new().unwrap();
        let (now, hour) = (Timestamp::from_secs(1), Timestamp::from_secs(3_601));
        assert!(!overflow.has_debt(7, now));
        overflow.add_debt(&mut overflow.lock(), 7, hour.as_nanos());
        overflow.add_debt(&mut overflow.lock(), 7, Timestamp::from_secs(2).as_nanos());
        assert_eq!(overflow.lock().tat(7), hour.as_nanos());
        assert!(overflow.has_debt(7, now));
        assert!(!overflow.has_debt(8, now) && !overflow.has_debt(7, hour));
    }
}
