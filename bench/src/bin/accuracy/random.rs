//! A small random number generator and the distributions that traffic is drawn from.
//!
//! Written here so that a seed gives the same traffic whatever version of whatever library is installed: published
//! numbers must be reproducible. xoshiro256++, seeded through splitmix64 as its authors advise.
//!
//! Must not know: sources, limits, traffic.

/// xoshiro256++.
#[derive(Clone, Debug)]
pub(crate) struct Random {
    state: [u64; 4],
}

impl Random {
    /// The generator number `stream` of this seed. Streams are independent, so that sources can be simulated in any
    /// order and by any thread.
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut mix = split_mix(seed) ^ split_mix(stream.wrapping_mul(0xD134_2543_DE82_EF95));
        let state = std::array::from_fn(|_| {
            mix = mix.wrapping_add(0x9E37_79B9_7F4A_7C15);
            split_mix(mix)
        });
        Self { state }
    }

    fn next(&mut self) -> u64 {
        let [a, b, c, d] = self.state;
        let result = a.wrapping_add(d).rotate_left(23).wrapping_add(a);
        let (c, d) = (c ^ a, d ^ b);
        self.state = [a ^ d, b ^ c, c ^ (b << 17), d.rotate_left(45)];
        result
    }

    /// Uniform in (0, 1]: never zero, so that logarithms and negative powers of it are finite.
    pub(crate) fn unit(&mut self) -> f64 {
        const STEP: f64 = 1.0 / (1_u64 << 53) as f64;
        ((self.next() >> 11) as f64 + 1.0) * STEP
    }

    /// Uniform between two values.
    pub(crate) fn uniform(&mut self, low: f64, high: f64) -> f64 {
        low + (high - low) * self.unit()
    }

    /// Uniform in the logarithm: every factor of ten is as likely as every other.
    pub(crate) fn log_uniform(&mut self, low: f64, high: f64) -> f64 {
        self.uniform(low.ln(), high.ln()).exp()
    }

    /// Exponential with this mean: the gaps of a Poisson process.
    pub(crate) fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }

    /// Pareto with this smallest value and tail index, cut off at `most`.
    pub(crate) fn pareto(&mut self, least: f64, alpha: f64, most: f64) -> f64 {
        (least * self.unit().powf(-1.0 / alpha)).min(most)
    }
}

/// A float as a whole number, for values that are counts or times by construction: what is negative or not a number
/// becomes zero, what is too large the largest.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "`as` saturates, which is what is asked for; this is the one place that does it"
)]
pub(crate) fn whole(value: f64) -> u64 {
    value as u64
}

fn split_mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_is_the_published_one() {
        // The first outputs of the authors' reference code from the state 1, 2, 3, 4.
        let mut random = Random {
            state: [1, 2, 3, 4],
        };
        let first: Vec<u64> = (0..4).map(|_| random.next()).collect();
        assert_eq!(
            first,
            [
                41_943_041,
                58_720_359,
                3_588_806_011_781_223,
                3_591_011_842_654_386
            ]
        );
    }

    #[test]
    fn streams_of_a_seed_differ_and_repeat() {
        let draw = |seed, stream| Random::new(seed, stream).next();
        assert_eq!(draw(1, 2), draw(1, 2));
        assert_ne!(draw(1, 2), draw(1, 3));
        assert_ne!(draw(1, 2), draw(2, 2));
    }

    #[test]
    fn distributions_have_their_means() {
        let mut random = Random::new(7, 0);
        let n = 200_000;
        let mut mean = |draw: fn(&mut Random) -> f64| {
            (0..n).map(|_| draw(&mut random)).sum::<f64>() / f64::from(n)
        };
        assert!((mean(Random::unit) - 0.5).abs() < 0.01);
        assert!((mean(|r| r.exponential(3.0)) - 3.0).abs() < 0.05);
        // least · α / (α − 1) = 2 · 3 / 2
        assert!((mean(|r| r.pareto(2.0, 3.0, 1e9)) - 3.0).abs() < 0.05);
        assert!((mean(|r| r.log_uniform(1.0, 100.0).ln()) - 10_f64.ln()).abs() < 0.05);
    }

    #[test]
    fn whole_numbers_saturate() {
        assert_eq!(whole(-1.0), 0);
        assert_eq!(whole(f64::NAN), 0);
        assert_eq!(whole(2.9), 2);
        assert_eq!(whole(1e30), u64::MAX);
    }
}
