//! Random numbers of a simulation: SplitMix64, so that a seed gives the same run everywhere.

/// The generator.
#[derive(Debug)]
pub struct Random(u64);

impl Random {
    /// The numbers of a seed.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        value ^ (value >> 31)
    }

    /// A number from 0 to 1, without 0.
    #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
    pub(super) const fn part(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A number of an exponential distribution with mean 1.
    pub fn exponential(&mut self) -> f64 {
        -self.part().ln()
    }
}
