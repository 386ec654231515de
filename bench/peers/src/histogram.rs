//! Durations counted in buckets that are three per cent wide, whatever their size.
//!
//! Must not know: what took so long.

/// Each power of two is cut into so many parts.
const PARTS_BITS: u32 = 5;
const PARTS: usize = 1 << PARTS_BITS;

/// Counts of nanoseconds.
pub(crate) struct Histogram {
    counts: Vec<u64>,
    total: u64,
    most: u64,
}

impl Histogram {
    pub(crate) fn new() -> Self {
        Self {
            counts: vec![0; 64 * PARTS],
            total: 0,
            most: 0,
        }
    }

    #[inline]
    pub(crate) fn add(&mut self, nanos: u64) {
        if let Some(count) = self.counts.get_mut(bucket(nanos)) {
            *count += 1;
        }
        self.total += 1;
        self.most = self.most.max(nanos);
    }

    /// The smallest bucket's value that at least `part` in `whole` of all durations do not exceed.
    pub(crate) fn quantile(&self, part: u64, whole: u64) -> u64 {
        let rank = (u128::from(self.total) * u128::from(part)).div_ceil(u128::from(whole.max(1)));
        let mut seen = 0_u128;
        for (index, count) in self.counts.iter().enumerate() {
            seen += u128::from(*count);
            if seen >= rank {
                return value(index).min(self.most);
            }
        }
        self.most
    }

    pub(crate) const fn most(&self) -> u64 {
        self.most
    }
}

fn bucket(nanos: u64) -> usize {
    let exponent = nanos.max(1).ilog2();
    if exponent < PARTS_BITS {
        return usize::try_from(nanos).unwrap_or(0);
    }
    let shift = exponent - PARTS_BITS;
    let part = usize::try_from(nanos >> shift).unwrap_or(0) - PARTS;
    (shift as usize + 1) * PARTS + part
}

/// The largest number that falls into a bucket.
fn value(index: usize) -> u64 {
    if index < PARTS {
        return index as u64;
    }
    let shift = index / PARTS - 1;
    (((PARTS + index % PARTS + 1) as u64) << shift) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_what_it_says_within_three_per_cent() {
        for nanos in [0, 1, 31, 32, 33, 63, 64, 1_000, 123_456_789] {
            let top = value(bucket(nanos));
            assert!(top >= nanos && top <= nanos + nanos / 31, "{nanos} {top}");
        }
    }

    #[test]
    fn quantiles_are_those_of_the_numbers() {
        let mut histogram = Histogram::new();
        (1..=1_000).for_each(|nanos| histogram.add(nanos));
        let within =
            |got: u64, want: u64| assert!(got.abs_diff(want) <= want / 31 + 1, "{got} {want}");
        within(histogram.quantile(1, 2), 500);
        within(histogram.quantile(99, 100), 990);
        assert_eq!(histogram.most(), 1_000);
        assert_eq!(histogram.quantile(1, 1), 1_000);
    }
}
