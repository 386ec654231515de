//! What a comparison says: that two quotas decide alike, that they do not, or that it is too early to say.
//!
//! Must not know: what was compared.

use tollgate_policy::model::Percent;

/// However clear the numbers look, fewer requests than this say nothing: they may all be of one key.
const MIN_COMPARED: u64 = 100;

/// Beyond this the last digits of counts do not matter, and squares would not fit.
const MAX_COUNT_BITS: u32 = 45;

/// What a comparison says.
///
/// The share that is decided differently is known only for the requests that were seen. Whether it is above the threshold
/// is said once chance alone would mislead in less than one case in twenty (a score test); a share that lies right at
/// the threshold takes longest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Agreement {
    /// They differ in a smaller share of requests than the threshold.
    Agrees,
    /// They differ in a larger one.
    Diverges,
    /// More requests have to be seen.
    Inconclusive,
}

impl Agreement {
    /// What it says that `differ` of `compared` requests were decided differently.
    #[must_use]
    pub fn from_counts(compared: u64, differ: u64, threshold: Percent) -> Self {
        if compared < MIN_COMPARED {
            return Self::Inconclusive;
        }
        let most = u128::from(Percent::ALL.hundredths());
        let threshold = u128::from(threshold.hundredths());
        // Where nothing may differ one that does is enough, and where everything may, nothing has to be counted.
        if threshold == 0 || threshold >= most {
            return if differ > 0 && threshold == 0 {
                Self::Diverges
            } else {
                Self::Agrees
            };
        }
        let excess = (u64::BITS - compared.leading_zeros()).saturating_sub(MAX_COUNT_BITS);
        let n = u128::from(compared >> excess);
        let k = u128::from(differ.min(compared) >> excess);
        // n·(k/n − t)² > z²·t·(1 − t), with z = 1.96 and everything multiplied until it is whole.
        let (seen, expected) = (k * most, n * threshold);
        let apart = seen.abs_diff(expected);
        let is_clear = apart.saturating_mul(apart).saturating_mul(10_000)
            > 38_416 * n * threshold * (most - threshold);
        match (is_clear, seen > expected) {
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
    fn few_requests_say_nothing_however_clear_they_look() {
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
    fn no_difference_is_agreement_once_chance_would_have_shown_one() {
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
    fn a_share_next_to_the_threshold_takes_many_requests() {
        let at =
            |n: u64, per_mille: u64| Agreement::from_counts(n, n * per_mille / 1_000, TWO_PERCENT);
        assert_eq!(at(1_000, 19), Agreement::Inconclusive);
        assert_eq!(at(1_000_000, 19), Agreement::Agrees);
        assert_eq!(at(1_000, 21), Agreement::Inconclusive);
        assert_eq!(at(1_000_000, 21), Agreement::Diverges);
        assert_eq!(at(1_000_000, 20), Agreement::Inconclusive);
    }

    #[test]
    fn the_ends_of_the_scale_and_the_largest_numbers_are_decided() {
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
