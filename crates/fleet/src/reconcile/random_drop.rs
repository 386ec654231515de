//! Drops a random share of requests while the fleet exceeds its limit.
//!
//! Must not know: limits, keys.

/// Keeps all requests.
const KEEP_ALL: u64 = 1 << 32;
/// Always keeps at least one in 1,024, so that a node notices when the others have stopped.
const MIN_KEPT: u64 = KEEP_ALL / 1_024;

/// The share of requests to keep, out of 2^32, and the random numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RandomDrop {
    keep_rate: u64,
    draws: u64,
    seed: u64,
}

impl RandomDrop {
    pub(super) const fn new(seed: u64) -> Self {
        Self {
            keep_rate: KEEP_ALL,
            draws: 0,
            seed,
        }
    }

    /// Whether to drop this request.
    pub(super) fn should_drop(&mut self) -> bool {
        if self.keep_rate >= KEEP_ALL {
            return false;
        }
        self.draws = self.draws.wrapping_add(1);
        splitmix64(self.seed.wrapping_add(self.draws)) >> 32 >= self.keep_rate
    }

    /// The fleet has spent `spent` where `allowed` was allowed. If it is in debt, keeps the share that makes both
    /// equal; otherwise keeps everything.
    pub(super) fn update(&mut self, spent: u64, allowed: u64, is_in_debt: bool) {
        if !is_in_debt {
            self.keep_rate = KEEP_ALL;
            return;
        }
        let rate = u128::from(self.keep_rate).saturating_mul(u128::from(allowed));
        let rate = rate.checked_div(u128::from(spent));
        let rate = rate.map_or(KEEP_ALL, |rate| u64::try_from(rate).unwrap_or(KEEP_ALL));
        // In bounded steps, because the spending of one interval predicts little of the next.
        let (min, max) = (self.keep_rate / 4, self.keep_rate.saturating_mul(2));
        self.keep_rate = rate.clamp(min, max).clamp(MIN_KEPT, KEEP_ALL);
    }
}

/// The finaliser of splitmix64.
const fn splitmix64(number: u64) -> u64 {
    let z = number.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_excess_share_of_requests_is_dropped() {
        let mut random_drop = RandomDrop::new(7);
        assert!((0..1_000).all(|_| !random_drop.should_drop()));
        random_drop.update(300, 100, true);
        let dropped = (0..30_000).filter(|_| random_drop.should_drop()).count();
        assert!((19_000..21_000).contains(&dropped), "{dropped}");
        random_drop.update(100, 100, true);
        let dropped = (0..30_000).filter(|_| random_drop.should_drop()).count();
        assert!(
            (19_000..21_000).contains(&dropped),
            "the rate stays the same"
        );
        random_drop.update(100, 100, false);
        assert!(!random_drop.should_drop());
    }

    #[test]
    fn some_are_always_kept_and_nothing_divides_by_zero() {
        let mut random_drop = RandomDrop::new(7);
        for _ in 0..100 {
            random_drop.update(u64::MAX, 1, true);
        }
        let rate = (0..100_000).filter(|_| !random_drop.should_drop()).count();
        assert!((20..400).contains(&rate), "{rate}");
        for _ in 0..100 {
            random_drop.update(0, 1, true);
        }
        assert!(!random_drop.should_drop());
    }
}
