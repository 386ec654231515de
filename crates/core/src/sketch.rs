//! A limiter for any number of identities in fixed memory, whose only error is a false denial.
//!
//! It is a count-min sketch whose cells are bucket states. The hash of an identity chooses one cell in every row. The smallest of these
//! cells is the estimated debt of the identity. All identities that share a cell add their charges to it, so a cell is never below the
//! debt of any of them: **no identity is admitted beyond its quota**.
//!
//! The error is a false denial. Let the identities admitted through the sketch together use R times the rate of one identity, and let one
//! of them use the fraction f of its own rate. Cells of a row of width w carry R / w of that load on average. By Markov's inequality a
//! given cell is overloaded with probability at most R / (w · (1 − f)). With d rows of independent hashes, the others cause a false
//! denial of the identity with probability at most **(R / (w · (1 − f)))^d**. A thousand identities at full rate in 4 rows of 4,096: at
//! most 0.4 % for a light one.
//!
//! Charges raise only the cells below the new estimate (conservative update), so the measured error is smaller than that. For the same
//! reason a charge cannot be taken out restored: a sketch has no refund.
//!
//! Must not know: clocks, how identities are hashed, stores.

use alloc::boxed::Box;
use alloc::vec;

use crate::error::{InvalidQuota, InvalidReason};
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::Timestamp;
use crate::token_bucket::{Tat, TokenBucket};

/// The most rows of a sketch; more rows only cost time.
const MAX_ROWS: usize = 16;
/// The widest row: with 16 rows, 128 GiB.
const MAX_WIDTH: usize = 1 << 30;

/// A token bucket quota for any number of identities, approximately, in `rows × width × 8` bytes.
///
/// ```
/// use tollgate_core::{Outcome, Rate, Timestamp, TokenBucket};
/// use tollgate_core::sketch::Sketch;
///
/// let quota = TokenBucket::builder(Rate::per_second(10)).burst(2).build()?;
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
    /// A sketch of `rows` rows of `width` cells each. The width is rounded up to a power of two.
    ///
    /// # Errors
    /// No rows or more than 16; a width of zero or more than 2^30.
    pub fn new(quota: TokenBucket, rows: usize, width: usize) -> Result<Self, InvalidQuota> {
        check_size("rows", rows, MAX_ROWS)?;
        check_size("width", width, MAX_WIDTH)?;
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
        let tat = self.tat(hash);
        let transition = self.quota.decide(tat, now, cost);
        if let Some(next) = transition.next {
            self.set_tat(hash, next);
        }
        (
            transition.outcome,
            self.quota.status(transition.next.unwrap_or(tat), now),
        )
    }

    /// The status of the identity with this hash.
    #[must_use]
    pub fn status(&self, hash: u64, now: Timestamp) -> QuotaStatus {
        self.quota.status(self.tat(hash), now)
    }

    /// Memory taken by the cells, in bytes.
    #[must_use]
    pub fn size(&self) -> usize {
        core::mem::size_of_val(&*self.cells)
    }

    /// The bucket state of the identity with this hash: the smallest of its cells, which is at least its own debt.
    ///
    /// With [`set_tat`](Self::set_tat) a caller can decide by another quota than the sketch's, or on several limits before charging any.
    /// Identities of different limits may share a sketch if their hashes differ: states are instants, so a shared cell still only
    /// over-counts.
    #[must_use]
    pub fn tat(&self, hash: u64) -> Tat {
        let cells = (0..self.rows).filter_map(|row| self.cells.get(self.index(hash, row)));
        cells.copied().min().unwrap_or(0)
    }

    /// Stores the state that follows from [`tat`](Self::tat). Cells below it are raised. If the state was lowered (a correction after the
    /// clock went back), the cells that held the old state are lowered too.
    pub fn set_tat(&mut self, hash: u64, next: Tat) {
        let old = self.tat(hash);
        for row in 0..self.rows {
            let index = self.index(hash, row);
            if let Some(cell) = self.cells.get_mut(index) {
                *cell = if *cell == old { next } else { next.max(*cell) };
            }
        }
    }

    /// The cells, row after row: the whole state of a sketch. Only a sketch with the same rows and the same width can read them.
    #[must_use]
    pub fn cells(&self) -> &[Tat] {
        &self.cells
    }

    /// Raises one of the [`cells`](Self::cells) to `tat`, to restore a sketch of the same rows and width. Returns whether the cell
    /// exists.
    pub fn raise_cell(&mut self, index: usize, tat: Tat) -> bool {
        let cell = self.cells.get_mut(index);
        cell.map(|cell| *cell = tat.max(*cell)).is_some()
    }

    fn index(&self, hash: u64, row: usize) -> usize {
        let mixed = mix(hash ^ ROW_SEED.wrapping_mul(to_u64(row).wrapping_add(1)));
        let column = usize::try_from(mixed >> 32).unwrap_or(0) & self.mask;
        row.saturating_mul(self.mask.saturating_add(1))
            .saturating_add(column)
    }
}

/// An odd constant (2^64 divided by the golden ratio), so that rows start from unrelated values.
const ROW_SEED: u64 = 0x9e37_79b9_7f4a_7c15;

/// The finalizer of SplitMix64: every input bit affects every output bit, so that rows choose independently although they share one hash.
const fn mix(mut word: u64) -> u64 {
    word ^= word >> 30;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^= word >> 27;
    word = word.wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}

fn to_u64(n: usize) -> u64 {
    u64::try_from(n).unwrap_or(u64::MAX)
}

fn check_size(field: &'static str, value: usize, most: usize) -> Result<(), InvalidQuota> {
    let (reason, nearest) = match value {
        0 => (InvalidReason::Zero, 1),
        _ if value > most => (InvalidReason::TooLarge, to_u64(most)),
        _ => return Ok(()),
    };
    Err(InvalidQuota {
        field,
        value: to_u64(value),
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
    fn sizes_out_of_range_are_rejected() {
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
    fn a_sketch_restored_from_cells_decides_alike() {
        let mut sketch = Sketch::new(quota(), 4, 64).unwrap();
        let mut restored = sketch.clone();
        let now = Timestamp::from_secs(10);
        sketch.decide(1, now, 5);
        for (index, tat) in sketch.cells().iter().enumerate() {
            assert!(restored.raise_cell(index, *tat));
        }
        assert!(!restored.raise_cell(4 * 64, 1), "the cell does not exist");
        assert_eq!(sketch.decide(1, now, 1), restored.decide(1, now, 1));
    }

    #[test]
    fn a_clock_that_goes_back_locks_no_identity_out() {
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
