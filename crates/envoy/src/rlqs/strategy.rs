//! The strategy of an assignment: admit all, deny all, or a token bucket that is never larger or faster than the shares.
//!
//! Envoy 1.36 to 1.40 interpret a token bucket as follows. The interval is truncated to whole seconds, so less than a second
//! would divide by zero. Tokens arrive evenly and not in steps, so a longer interval is equivalent. Two buckets with the same
//! tokens and the same *nanoseconds* of the interval count as equal, whatever the seconds. So the nanoseconds repeat the
//! seconds, which costs a billionth of the rate. Must not know: protobuf, which client gets it.
use tollgate_core::Nanos;

/// The strategy for the requests of a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Strategy {
    AllowAll,
    DenyAll,
    Tokens(QuotaTokenBucket),
}

/// A token bucket with the fields of Envoy's message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct QuotaTokenBucket {
    pub(super) max_tokens: u32,
    pub(super) tokens_per_fill: u32,
    /// The interval in whole seconds.
    pub(super) seconds: u64,
}

/// A share of a limit: units that refill in `window`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LimitShare {
    pub(super) units: u64,
    pub(super) window: Nanos,
}

const SECOND: u64 = Nanos::SECOND.as_nanos();
/// A window that is not a whole number of seconds is multiplied by up to this, until it is or nearly is.
const MAX_WINDOW_MULTIPLE: u64 = 1_000;
/// Envoy's slowest fill rate is one token a year.
const SLOWEST_FILL: u64 = Nanos::YEAR.as_nanos();

impl QuotaTokenBucket {
    /// The nanoseconds of the interval, which differ if the seconds differ.
    pub(super) const fn nanos(&self) -> u64 {
        self.seconds % SECOND
    }

    fn new(units: u64, burst: u64, window: Nanos) -> Option<Self> {
        let window = window.as_nanos().max(1);
        let longest = u128::from(units).saturating_mul(SLOWEST_FILL.into());
        if units == 0 || burst == 0 || u128::from(window) > longest {
            return None;
        }
        let is_whole = |times: &u64| window.saturating_mul(*times).is_multiple_of(SECOND);
        let most = (u64::from(u32::MAX) / units).clamp(1, MAX_WINDOW_MULTIPLE);
        let times = (1..=most).find(is_whole).unwrap_or(most);
        // Rounded to fewer tokens and more seconds.
        let tokens = u32::try_from(units.saturating_mul(times)).unwrap_or(u32::MAX);
        let span = u128::from(window)
            .saturating_mul(tokens.into())
            .div_ceil(u128::from(units).saturating_mul(SECOND.into()));
        Some(Self {
            max_tokens: u32::try_from(burst).unwrap_or(u32::MAX),
            tokens_per_fill: tokens,
            seconds: u64::try_from(span).unwrap_or(u64::MAX).max(1),
        })
    }
}

impl Strategy {
    /// The strategy that stays within all of these shares. Without shares everything is admitted.
    pub(super) fn from_shares(shares: &[LimitShare]) -> Self {
        let is_slower = |a: &&LimitShare, b: &&LimitShare| {
            let left = u128::from(a.units).saturating_mul(b.window.as_nanos().into());
            let right = u128::from(b.units).saturating_mul(a.window.as_nanos().into());
            left.cmp(&right)
        };
        let Some(slowest) = shares.iter().min_by(is_slower) else {
            return Self::AllowAll;
        };
        let burst = shares.iter().map(|share| share.units).min().unwrap_or(0);
        QuotaTokenBucket::new(slowest.units, burst, slowest.window)
            .map_or(Self::DenyAll, Self::Tokens)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(units: u64, window: Nanos) -> LimitShare {
        LimitShare { units, window }
    }

    fn tokens(shares: &[LimitShare]) -> QuotaTokenBucket {
        match Strategy::from_shares(shares) {
            Strategy::Tokens(tokens) => tokens,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_window_of_whole_seconds_is_kept() {
        assert_eq!(
            tokens(&[share(30, Nanos::MINUTE)]),
            QuotaTokenBucket {
                max_tokens: 30,
                tokens_per_fill: 30,
                seconds: 60
            }
        );
    }

    #[test]
    fn fractions_of_seconds_become_whole_seconds() {
        let fast = tokens(&[share(3, Nanos::from_millis(100))]);
        assert_eq!(
            (fast.max_tokens, fast.tokens_per_fill, fast.seconds),
            (3, 30, 1)
        );
        let odd = tokens(&[share(3, Nanos::from_millis(1_500))]);
        assert_eq!(
            (odd.max_tokens, odd.tokens_per_fill, odd.seconds),
            (3, 6, 3)
        );
    }

    #[test]
    fn nothing_is_ever_rounded_up_and_little_is_lost() {
        let units = [
            1,
            2,
            3,
            7,
            10,
            999,
            65_537,
            u64::from(u32::MAX),
            u64::MAX / 2,
        ];
        let windows = [
            1,
            7,
            999,
            333_333_334,
            1_000_000_002,
            1_700_000_001,
            3_600_000_000_001,
            2_678_400_000_000_000,
            1 << 62,
        ];
        for (units, window) in units.iter().flat_map(|u| windows.map(|w| (*u, w))) {
            let Strategy::Tokens(bucket) =
                Strategy::from_shares(&[share(units, Nanos::from_nanos(window))])
            else {
                assert!(u128::from(window) > u128::from(units) * u128::from(SLOWEST_FILL));
                continue;
            };
            // bucket.tokens / bucket.seconds <= units / window, without dividing.
            let left = u128::from(bucket.tokens_per_fill) * u128::from(window);
            let right = u128::from(units) * u128::from(bucket.seconds) * u128::from(SECOND);
            assert!(left <= right, "{units} in {window}: {bucket:?}");
            assert!(u64::from(bucket.max_tokens) <= units);
            // Only extreme sizes and windows lose much by rounding.
            let is_ordinary = units < 1_000_000 && window > 1_000_000;
            if is_ordinary {
                assert!(
                    left * 1_000 >= right * 998,
                    "{units} in {window}: {bucket:?}"
                );
            }
        }
    }

    #[test]
    fn the_slowest_and_the_smallest_of_several_shares_count() {
        let both = tokens(&[share(5, Nanos::SECOND), share(100, Nanos::MINUTE)]);
        assert_eq!(
            (both.max_tokens, both.tokens_per_fill, both.seconds),
            (5, 100, 60)
        );
        assert_eq!(Strategy::from_shares(&[]), Strategy::AllowAll);
        let none = [share(5, Nanos::SECOND), share(0, Nanos::MINUTE)];
        assert_eq!(Strategy::from_shares(&none), Strategy::DenyAll);
        // One in two years: Envoy would make one a year of it.
        let rare = [share(1, Nanos::from_secs(2 * 31_536_000))];
        assert_eq!(Strategy::from_shares(&rare), Strategy::DenyAll);
    }

    #[test]
    fn intervals_that_differ_in_their_seconds_differ_in_what_envoy_compares() {
        let nanos = |window| tokens(&[share(10, window)]).nanos();
        assert_ne!(nanos(Nanos::SECOND), nanos(Nanos::MINUTE));
        assert!(nanos(Nanos::MINUTE) < SECOND);
    }
}
