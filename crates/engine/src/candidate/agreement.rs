//! Whether a candidate agrees with its limit, diverges from it, or has too few comparisons for a conclusion.
//!
//! Must not know: what was compared.

use tollgate_policy::model::Percent;

/// With fewer comparisons than this the result is always inconclusive: all of them may belong to one key.
const MIN_COMPARED: u64 = 100;

/// Counts are shifted right to at most this many bits, so that the squares below fit into 128 bits.
const MAX_COUNT_BITS: u32 = 45;

/// The result of comparing a candidate with its limit.
///
/// A score test at the 5 % level compares the observed share of differing decisions with the threshold. A share close
/// to the threshold needs the most comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// The share of differing decisions is below the threshold.
    Agrees,
    /// The share of differing decisions is above the threshold.
    Diverges,
    /// More comparisons are needed.
    Inconclusive,
}

impl Agreement {
    /// Tests whether `differ` of `compared` requests is below or above the threshold.
    #[must_use]
    pub fn from_counts(compared: u64, differ: u64, threshold: Percent) -> Self {
        if compared < MIN_COMPARED {
            return Self::Inconclusive;
        }
        let whole = u128::from(Percent::ALL.hundredths());
        let threshold = u128::from(threshold.hundredths());
        // With a threshold of 0 % one difference diverges; with 100 % nothing can.
        if threshold == 0 || threshold >= whole {
            return if differ > 0 && threshold == 0 {
                Self::Diverges
            } else {
                Self::Agrees
            };
        }
        let excess = (u64::BITS - compared.leading_zeros()).saturating_sub(MAX_COUNT_BITS);
        let n = u128::from(compared >> excess);
        let k = u128::from(differ.min(compared) >> excess);
        // n·(k/n − t)² > z²·t·(1 − t), with z = 1.96, in integers.
        let (observed, expected) = (k * whole, n * threshold);
        let difference = observed.abs_diff(expected);
        let is_significant = difference.saturating_mul(difference).saturating_mul(10_000)
            > 38_416 * n * threshold * (whole - threshold);
        match (is_significant, observed > expected) {
            (false, _) => Self::Inconclusive,
            (true, true) => Self::Diverges,
            (true, false) => Self::Agrees,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO_PERCENT: Percent = Percent::from_hundredths(200);

    #[test]
    fn fewer_than_100_comparisons_are_inconclusive() {
        assert_eq!(
            Agreement::from_counts(0, 0, TWO_PERCENT),
            Agreement::Inconclusive
        );
        assert_eq!(
            Agreement::from_counts(99, 99, TWO_PERCENT),
            Agreement::Inconclusive
        );
        assert_eq!(
            Agreement::from_counts(100, 100, TWO_PERCENT),
            Agreement::Diverges
        );
    }

    #[test]
    fn no_difference_is_agreement_once_there_are_enough_comparisons() {
        // 1.96² × 0.98 / 0.02 = 188.2
        assert_eq!(
            Agreement::from_counts(188, 0, TWO_PERCENT),
            Agreement::Inconclusive
        );
        assert_eq!(
            Agreement::from_counts(189, 0, TWO_PERCENT),
            Agreement::Agrees
        );
    }

    #[test]
    fn a_share_close_to_the_threshold_needs_many_comparisons() {
        let at =
            |n: u64, per_mille: u64| Agreement::from_counts(n, n * per_mille / 1_000, TWO_PERCENT);
        assert_eq!(at(1_000, 19), Agreement::Inconclusive);
        assert_eq!(at(1_000_000, 19), Agreement::Agrees);
        assert_eq!(at(1_000, 21), Agreement::Inconclusive);
        assert_eq!(at(1_000_000, 21), Agreement::Diverges);
        assert_eq!(at(1_000_000, 20), Agreement::Inconclusive);
    }

    #[test]
    fn thresholds_of_0_and_100_percent_and_the_largest_counts_are_conclusive() {
        assert_eq!(
            Agreement::from_counts(100, 0, Percent::ZERO),
            Agreement::Agrees
        );
        assert_eq!(
            Agreement::from_counts(u64::MAX, 1, Percent::ZERO),
            Agreement::Diverges
        );
        assert_eq!(
            Agreement::from_counts(100, 100, Percent::ALL),
            Agreement::Agrees
        );
        assert_eq!(
            Agreement::from_counts(u64::MAX, u64::MAX, TWO_PERCENT),
            Agreement::Diverges
        );
        assert_eq!(
            Agreement::from_counts(u64::MAX, 0, TWO_PERCENT),
            Agreement::Agrees
        );
        let least = Percent::from_hundredths(9_999);
        assert_eq!(
            Agreement::from_counts(u64::MAX, u64::MAX, least),
            Agreement::Diverges
        );
    }
}
