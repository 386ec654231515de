//! Numbers that look random, from a seed.
//!
//! Must not know: what they decide.

/// A SplitMix64 generator.
#[derive(Clone, Debug)]
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number from zero to one, without one.
    pub(crate) fn fraction(&mut self) -> f64 {
        f64::from(self.next()) / 4_294_967_296.0
    }

    /// A number from zero to a million.
    pub(crate) fn millionths(&mut self) -> u64 {
        (u64::from(self.next()) * 1_000_001) >> 32
    }

    fn next(&mut self) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^= mixed >> 31;
        let [.., a, b, c, d] = mixed.to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}
