//! Numbers that look random and are the same for the same seed.
//!
//! Must not know: what is decided by them.

/// A die that rolls the same for the same seed.
#[derive(Clone, Debug)]
pub struct SeededRng(u64);

impl SeededRng {
    /// The die of this seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Any number.
    pub const fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below `n`, and zero if there is none.
    pub fn below(&mut self, n: u64) -> u64 {
        self.roll().checked_rem(n).unwrap_or(0)
    }

    /// Whether something happens that does in so many of a hundred cases.
    pub fn happens(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// Whether something happens that does once in so many cases.
    pub fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    /// One of these, of which there must be some.
    ///
    /// # Panics
    /// There are none.
    #[expect(
        clippy::indexing_slicing,
        reason = "a test that has nothing to pick from has to end"
    )]
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        let index = self.below(from.len() as u64);
        from[usize::try_from(index).unwrap_or(0)]
    }

    /// Puts things in another order.
    pub fn shuffle<T>(&mut self, things: &mut [T]) {
        for last in (1..things.len()).rev() {
            let other = self.below(last as u64 + 1);
            things.swap(last, usize::try_from(other).unwrap_or(0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_rolls_the_same_and_another_does_not() {
        let rolls = |seed| {
            let mut dice = SeededRng::new(seed);
            (0..4).map(|_| dice.roll()).collect::<Vec<_>>()
        };
        assert_eq!(rolls(7), rolls(7));
        assert_ne!(rolls(7), rolls(8));
    }

    #[test]
    fn what_is_shuffled_is_all_there() {
        let mut things: Vec<u64> = (0..50).collect();
        SeededRng::new(1).shuffle(&mut things);
        assert_ne!(things, (0..50).collect::<Vec<_>>());
        things.sort_unstable();
        assert_eq!(things, (0..50).collect::<Vec<_>>());
        assert_eq!(SeededRng::new(1).below(0), 0);
    }
}
