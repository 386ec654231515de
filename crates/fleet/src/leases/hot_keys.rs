//! Estimates how often keys without a lease are used, in bounded memory.
//!
//! Each key has a cell by its digest, which counts arrivals and halves every half second. Keys that share a cell compete for
//! it: an arrival of another key takes one from the count, so the cell belongs to the key that is used most. A wrong estimate
//! costs calls and never changes a decision. Digests are keyed, so nobody can choose a cell. Must not know: leases, brokers.

use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Timestamp};

use crate::sharded_table::KeyDigest;

/// The number of cells: half a megabyte.
const CELLS: usize = 1 << 16;
/// Counts halve in this time. At a steady rate, a count is then about the arrivals of one second.
const HALF_LIFE: Nanos = Nanos::from_millis(500);
/// One arrival.
const ONE: u64 = 1 << 8;
const MAX_COUNT: u64 = u16::MAX as u64;
/// Bits of the owner and of the time in a cell.
const FIELD: u64 = (1 << 24) - 1;

/// The most half-lives that a clock goes back by. More than that is a cell that was not used for months.
const MAX_BACK: u64 = 64;

/// The estimates of all keys. Nothing is allocated before the first arrival.
#[derive(Debug, Default)]
pub(super) struct HotKeys {
    cells: OnceLock<Box<[AtomicU64]>>,
}

/// One cell: the key that it counts, when it was counted, and the count.
#[derive(Clone, Copy)]
struct Cell {
    owner: u64,
    half_life: u64,
    count: u64,
}

impl HotKeys {
    /// Counts an arrival of a key. Returns about how many there were in the last second.
    pub(super) fn observe(&self, digest: KeyDigest, now: Timestamp) -> u64 {
        let new_cells = || (0..CELLS).map(|_| AtomicU64::new(0)).collect();
        let cells = self.cells.get_or_init(new_cells);
        let bits = u64::try_from(digest & u128::from(u64::MAX)).unwrap_or(0);
        let index = usize::try_from(bits).unwrap_or(0) % CELLS;
        let Some(place) = cells.get(index) else {
            return 0;
        };
        let half_life = (now.as_nanos() / HALF_LIFE.as_nanos()) & FIELD;
        // Concurrent arrivals may overwrite each other; the estimate is then a little lower.
        let mut cell = Cell::from_bits(place.load(Ordering::Relaxed)).at(half_life);
        let owner = (bits >> 40) & FIELD;
        if cell.owner == owner {
            cell.count = cell.count.saturating_add(ONE).min(MAX_COUNT);
        } else if cell.count <= ONE {
            (cell.owner, cell.count) = (owner, ONE);
        } else {
            cell.count = cell.count.saturating_sub(ONE);
            place.store(cell.into_bits(), Ordering::Relaxed);
            return 1;
        }
        place.store(cell.into_bits(), Ordering::Relaxed);
        cell.count / ONE
    }
}

impl Cell {
    const fn from_bits(bits: u64) -> Self {
        Self {
            owner: bits >> 40,
            half_life: (bits >> 16) & FIELD,
            count: bits & MAX_COUNT,
        }
    }

    const fn into_bits(self) -> u64 {
        self.owner << 40 | self.half_life << 16 | self.count
    }

    /// The cell at another time. A clock that went back by a little changes nothing.
    fn at(mut self, half_life: u64) -> Self {
        let back = self.half_life.wrapping_sub(half_life) & FIELD;
        if back == 0 || back > MAX_BACK {
            let passed = half_life.wrapping_sub(self.half_life) & FIELD;
            let passed = u32::try_from(passed).unwrap_or(u32::MAX);
            self.count = self.count.checked_shr(passed).unwrap_or(0);
            self.half_life = half_life;
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    /// A digest with all of its bits mixed.
    fn digest(n: u64) -> KeyDigest {
        let mixed = n.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        u128::from(mixed ^ mixed >> 29)
    }

    fn after(millis: u64) -> Timestamp {
        START.after(Nanos::from_millis(millis))
    }

    /// The estimate after ten seconds of arrivals at this rate.
    fn estimate(per_second: u64) -> u64 {
        let keys = HotKeys::default();
        let arrivals =
            (0..10 * per_second).map(|n| keys.observe(digest(7), after(n * 1_000 / per_second)));
        arrivals.last().unwrap()
    }

    #[test]
    fn an_estimate_is_about_the_arrivals_of_a_second() {
        for rate in [1, 2, 8, 50, 200] {
            let estimate = estimate(rate);
            assert!(
                (rate / 2..=rate + 1).contains(&estimate),
                "{rate}: {estimate}"
            );
        }
    }

    #[test]
    fn a_key_that_rests_is_forgotten_and_a_clock_that_steps_back_changes_nothing() {
        let keys = HotKeys::default();
        for _ in 0..8 {
            keys.observe(digest(7), after(0));
        }
        assert_eq!(
            keys.observe(digest(7), Timestamp::from_secs(1_699_999_997)),
            9
        );
        assert_eq!(keys.observe(digest(7), after(10_000)), 1);
        assert_eq!(keys.observe(digest(7), after(u64::from(u32::MAX))), 1);
    }

    /// A million keys, each once or twice a second, must neither look hot nor hide a key that is.
    #[test]
    fn a_million_cold_keys_do_not_look_hot_and_do_not_hide_a_hot_one() {
        let keys = HotKeys::default();
        let (mut hot_estimate, mut looked_hot) = (0, 0);
        for n in 0..1_000_000_u64 {
            let now = after(n / 1_000);
            looked_hot += u64::from(keys.observe(digest(n + 100), now) >= 4);
            if n % 10 == 0 {
                hot_estimate = keys.observe(digest(7), now);
            }
        }
        assert!(hot_estimate > 50, "{hot_estimate}");
        // Control: an estimate without owners counts 15 keys in each cell every second.
        assert!(looked_hot < 1_000, "{looked_hot}");
    }
}
