//! Numbers that look random and are the same for the same seed. Must not know: what is decided by them.

/// A die that rolls the same for the same seed.
pub(super) struct SeededRng(u64);

impl SeededRng {
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// Puts things in another order.
    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = self.roll().checked_rem(last as u64 + 1).unwrap_or(0);
            things.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }
}

/// A seed that is another one each time.
pub(super) fn from_the_clock() -> u64 {
    use std::hash::BuildHasher as _;
    std::hash::RandomState::new().hash_one(0_u8)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_puts_things_in_the_same_order_and_loses_none() {
        let shuffled = |seed| {
            let mut things: Vec<u32> = (0..30).collect();
            SeededRng::new(seed).shuffle(&mut things);
            things
        };
        assert_eq!(shuffled(1), shuffled(1));
        assert_ne!(shuffled(1), shuffled(2));
        let mut sorted = shuffled(1);
        sorted.sort_unstable();
        assert_eq!(sorted, (0..30).collect::<Vec<_>>());
    }
}
