//! A limiter for any number of identities in fixed memory, which errs only towards denying.
//!
//! A count-min sketch whose cells are bucket states. Each identity has one cell in every row, chosen by its hash; its
//! debt is taken to be the smallest of them. A cell is shared by every identity that falls into it and only ever
//! grows by their charges, so it is never below the debt of any of them: **nobody is admitted beyond their quota**.
//!
//! The error is a false denial. Let the identities admitted through the sketch use, together, R times one identity's
//! rate, and let one of them use the fraction f of its own. Cells of a row of width w carry R / w of that load on
//! average, so by Markov's inequality a given cell is overloaded with probability at most R / (w · (1 − f)), and with
//! d rows of independent hashes the identity suffers from the others with probability at most
//! **(R / (w · (1 − f)))^d**. A thousand identities at full rate in 4 rows of 4,096: at most 0.4 % for a light one.
//!
//! Charges raise only the cells that are below the new estimate (conservative update), so what is measured is
//! better than that. For the same reason a charge cannot be taken out again: a sketch knows no refund.
//!
//! Must not know: clocks, how identities are hashed, stores.

use alloc::boxed::Box;
use alloc::vec;

use crate::error::{InvalidQuota, InvalidReason};
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::Timestamp;
use crate::token_bucket::{Tat, TokenBucket};

/// The most rows a sketch may have; more than that only costs time.
const MAX_ROWS: usize = 16;
/// The widest that a row may be: with 16 rows, 128 GiB.
const MAX_WIDTH: usize = 1 << 30;

/// A token bucket quota for every identity there is, approximately, in `rows × width × 8` bytes.
///
/// ```
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket};
/// use tollgate_core::sketch::Sketch;
///
/// let quota = TokenBucket::at(Rate::per_second(10)).burst(2).build()?;
/// let mut sketch = Sketch::new(quota, 4, 1_024)?;
/// let (now, alice) = (Timestamp::from_secs(1), 0x5eed_a11c_e000_0001);
/// assert_eq!(sketch.decide(alice, now, 2).0, Outcome::Allow);
/// assert!(matches!(sketch.decide(alice, now, 1).0, Outcome::Deny { .. }));
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Debug)]
pub struct Sketch {
    quota: TokenBucket,
    /// `rows` rows of `mask + 1` cells, one after the other.
    cells: Box<[Tat]>,
    rows: usize,
    mask: usize,
}

impl Sketch {
    /// A sketch of so many rows, each so wide, rounded up to a power of two.
    ///
    /// # Errors
    /// No rows or more than 16; no width or more than 2^30.
    pub fn new(quota: TokenBucket, rows: usize, width: usize) -> Result<Self, InvalidQuota> {
        check("rows", rows, MAX_ROWS)?;
        check("width", width, MAX_WIDTH)?;
        let width = width.next_power_of_two();
        let cells = vec![0; width.saturating_mul(rows)].into_boxed_slice();
        Ok(Self {
            quota,
            cells,
            rows,
            mask: width.saturating_sub(1),
        })
    }

    /// Decides on `cost` units for the identity with this hash. The hash must be keyed with a secret, or an
    /// attacker can aim at the cells of a victim.
    pub fn decide(&mut self, hash: u64, now: Timestamp, cost: u64) -> (Outcome, QuotaStatus) {
        let owed = self.tat(hash);
        let transition = self.quota.decide(owed, now, cost);
        if let Some(next) = transition.next {
            self.set_tat(hash, next);
        }
        (
            transition.outcome,
            self.quota.status(transition.next.unwrap_or(owed), now),
        )
    }

    /// What the identity with this hash may be told.
    #[must_use]
    pub fn status(&self, hash: u64, now: Timestamp) -> QuotaStatus {
        self.quota.status(self.tat(hash), now)
    }

    /// Memory taken by the cells, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        core::mem::size_of_val(&*self.cells)
    }

    /// The bucket state that stands for the identity with this hash: the smallest of its cells, at least its own.
    /// With [`owe`](Self::owe) it lets a caller decide by another quota than the sketch's, or on several limits
    /// before any is charged. Identities of different limits may share a sketch if their hashes differ: states are
    /// instants, so what they share still only over-counts.
    #[must_use]
    pub fn tat(&self, hash: u64) -> Tat {
        let cells = (0..self.rows).filter_map(|row| self.cells.get(self.index(hash, row)));
        cells.copied().min().unwrap_or(0)
    }

    /// Stores what [`owed`](Self::owed) became. Cells below it are raised. Where it was corrected downwards (a clock
    /// that went back), the cells that held it follow.
    pub fn set_tat(&mut self, hash: u64, next: Tat) {
        let owed = self.tat(hash);
        for row in 0..self.rows {
            let index = self.index(hash, row);
            if let Some(cell) = self.cells.get_mut(index) {
                *cell = if *cell == owed { next } else { next.max(*cell) };
            }
        }
    }

    /// The cells, row after row: what there is to keep of a sketch. What they mean depends on the number of rows and their
    /// width.
    #[must_use]
    pub fn cells(&self) -> &[Tat] {
        &self.cells
    }

    /// Raises one of the [`cells`](Self::cells) to what it was, in a sketch of the same rows and width. Answers whether there
    /// is such a cell.
    pub fn raise_cell(&mut self, index: usize, tat: Tat) -> bool {
        let cell = self.cells.get_mut(index);
        cell.map(|cell| *cell = tat.max(*cell)).is_some()
    }

    fn index(&self, hash: u64, row: usize) -> usize {
        let mixed = mix(hash ^ ROW_SEED.wrapping_mul(wide(row).wrapping_add(1)));
        let column = usize::try_from(mixed >> 32).unwrap_or(0) & self.mask;
        row.saturating_mul(self.mask.saturating_add(1))
            .saturating_add(column)
    }
}

/// An odd constant (2^64 divided by the golden ratio), so that rows start from unrelated values.
const ROW_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// A permutation of 64-bit words in which every input bit reaches every output bit, so that rows choose
/// independently although they share one hash.
const fn mix(mut word: u64) -> u64 {
    word ^= word >> 30;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^= word >> 27;
    word = word.wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn wide(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn check(field: &'static str, value: usize, most: usize) -> Result<(), InvalidQuota> {
    let (reason, nearest) = match value {
        0 => (InvalidReason::Zero, 1),
        _ if value > most => (InvalidReason::TooLarge, wide(most)),
        _ => return Ok(()),
    };
    Err(InvalidQuota {
        field,
        value: wide(value),
        reason,
        nearest: Some(nearest),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;
    use crate::time::Nanos;

    fn quota() -> TokenBucket {
        TokenBucket::builder(Rate::per_second(1))
            .burst(5)
            .build()
            .unwrap()
    }

    #[test]
    fn sizes_that_make_no_sense_are_refused() {
        assert_eq!(Sketch::new(quota(), 0, 8).unwrap_err().field, "rows");
        assert_eq!(Sketch::new(quota(), 17, 8).unwrap_err().nearest, Some(16));
        assert_eq!(Sketch::new(quota(), 1, 0).unwrap_err().field, "width");
        assert_eq!(
            Sketch::new(quota(), 4, 1_000).unwrap().size(),
            4 * 1_024 * 8
        );
    }

    #[test]
    fn a_denial_and_a_peek_leave_every_cell_as_it_was() {
        let mut sketch = Sketch::new(quota(), 4, 64).unwrap();
        let now = Timestamp::from_secs(10);
        sketch.decide(1, now, 5);
        let before = sketch.cells.clone();
        assert!(matches!(sketch.decide(1, now, 1).0, Outcome::Deny { .. }));
        assert_eq!(sketch.decide(1, now, 0).0, Outcome::Allow);
        assert_eq!(sketch.decide(1, now, 6).0, Outcome::Never);
        assert_eq!(sketch.cells, before);
    }

    #[test]
    fn a_sketch_that_gets_the_cells_of_another_decides_alike() {
        let mut sketch = Sketch::new(quota(), 4, 64).unwrap();
        let mut again = sketch.clone();
        let now = Timestamp::from_secs(10);
        sketch.decide(1, now, 5);
        for (index, tat) in sketch.cells().iter().enumerate() {
            assert!(again.raise_cell(index, *tat));
        }
        assert!(!again.raise_cell(4 * 64, 1), "there is no such cell");
        assert_eq!(sketch.decide(1, now, 1), again.decide(1, now, 1));
    }

    #[test]
    fn a_clock_that_goes_back_locks_nobody_out() {
        let mut sketch = Sketch::new(quota(), 4, 64).unwrap();
        sketch.decide(1, Timestamp::from_secs(1_000), 5);
        let back = Timestamp::from_secs(10);
        let denied = Outcome::Deny {
            retry_after: Nanos::SECOND,
        };
        assert_eq!(sketch.decide(1, back, 1).0, denied);
        assert_eq!(
            sketch.decide(1, Timestamp::from_secs(11), 1).0,
            Outcome::Allow
        );
    }
}
