//! The fallback quota of a limit on one node: half of the limit, divided by the number of nodes.
//!
//! Buckets stay buckets. Windows become a bucket that refills evenly, because only the store knows what remains of the
//! window. The share is at least one unit, so that a degraded limiter denies more but not everything. Must not know:
//! keys, when it is used.

use std::num::NonZeroU32;

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{Concurrency, FixedWindow, MAX_CAPACITY, Nanos, Rate, TokenBucket};

/// The most units that a refill is computed for.
const MAX_UNITS: u64 = 1 << 40;
/// The assumed length of a calendar month: the longest, so that the fallback admits less rather than more.
const CALENDAR_PERIOD: Nanos = Nanos::from_secs(31 * 86_400);

/// The fallback quota of a limit with this many nodes. `None` if the limit admits nothing.
pub(crate) fn fallback_quota(limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
    if let Some(lease) = limit.lease_duration() {
        let permits = Concurrency::new(share(limit.capacity(), nodes)?, lease).ok()?;
        return Some(Limit::new(permits).with_unit(limit.unit()));
    }
    let (whole, period) = whole_quota(limit)?;
    let share = share(whole, nodes)?;
    // The share refills in the same `period` as the whole limit. A share below one unit becomes one unit with a longer
    // period.
    let slowed = if share == 1 {
        slowed_period(period, whole, nodes)
    } else {
        period
    };
    let bucket = bucket(share, slowed)?.with_extra_overdraft(overdraft(limit));
    let bucket = match whole_bucket(limit) {
        Some(ceiling) => bucket.sharing_state_with(&ceiling),
        None => bucket,
    };
    Some(Limit::new(bucket).with_unit(limit.unit()))
}

/// The fallback quota of an Envoy counter. It is a window too: denied hits are counted, and a bucket that is charged
/// for denials would deny as long as they come. Its last unit is over the limit, so the share gets one more.
pub(crate) fn counter_fallback_quota(limit: &Limit, nodes: NonZeroU32) -> Option<Limit> {
    let Quota::FixedWindow(fixed) = limit.quota() else {
        return None;
    };
    let share = share(fixed.limit().saturating_sub(1), nodes).unwrap_or(0);
    let window = FixedWindow::builder(share.saturating_add(1), fixed.window());
    let window = window.build().ok()?;
    Some(Limit::new(window).with_unit(limit.unit()))
}

/// A bucket on the fallback's state that is charged with what the store admits. `None` if the limit is not counted in
/// units.
pub(crate) fn ceiling_quota(limit: &Limit) -> Option<Limit> {
    whole_bucket(limit).map(|bucket| Limit::new(bucket).with_unit(limit.unit()))
}

/// The whole limit as a bucket. It refills in whole intervals, whatever blocks and overdraft the limit has.
fn whole_bucket(limit: &Limit) -> Option<TokenBucket> {
    let (whole, period) = whole_quota(limit)?;
    bucket(whole.min(MAX_UNITS), period)
}

/// The limit's capacity, and the time in which it refills. `None` for concurrency limits, and for limits that admit
/// nothing.
fn whole_quota(limit: &Limit) -> Option<(u64, Nanos)> {
    let period = limit.refill_period()?.span_or(CALENDAR_PERIOD);
    let whole = limit.capacity();
    (whole > 0).then_some((whole, period))
}

/// How long the limit takes to refill its overdraft. The fallback refills its part of the overdraft in the same time.
fn overdraft(limit: &Limit) -> Nanos {
    let Some(bucket) = limit.bucket() else {
        return Nanos::ZERO;
    };
    let blocks = bucket.limit().checked_div(bucket.block()).unwrap_or(0);
    let capacity = bucket.interval().as_nanos().saturating_mul(blocks);
    bucket
        .saturation()
        .saturating_sub(Nanos::from_nanos(capacity))
}

/// A bucket of `units` that refills in `period`, with one unit for each interval. The interval is rounded up, so that
/// it never admits more.
fn bucket(units: u64, period: Nanos) -> Option<TokenBucket> {
    let longest = MAX_CAPACITY.as_nanos();
    let interval = period.as_nanos().div_ceil(units.max(1)).clamp(1, longest);
    let burst = units.min(longest.checked_div(interval)?).max(1);
    let bucket = TokenBucket::builder(Rate::new(1, Nanos::from_nanos(interval))).burst(burst);
    bucket.build().ok()
}

/// Half of the whole, divided by the number of nodes: at least one unit, unless the whole is zero.
fn share(whole: u64, nodes: NonZeroU32) -> Option<u64> {
    match whole.min(MAX_UNITS) {
        0 => None,
        whole => Some((whole / 2 / u64::from(nodes.get())).max(1)),
    }
}

/// How long one unit takes if the share is less than one: the time in which half of the limit yields one unit for every
/// node.
fn slowed_period(period: Nanos, whole: u64, nodes: NonZeroU32) -> Nanos {
    let units = u128::from(whole.clamp(1, MAX_UNITS));
    let nanos = u128::from(period.as_nanos()) * 2 * u128::from(nodes.get());
    let nanos = nanos
        .div_ceil(units)
        .max(u128::from(period.as_nanos()) / units);
    u64::try_from(nanos).map_or(Nanos::YEAR, |nanos| {
        Nanos::from_nanos(nanos).min(Nanos::YEAR)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::limit::{Op, State};
    use tollgate_core::{QuotaUnit, Timestamp, Window};

    fn nodes(count: u32) -> NonZeroU32 {
        NonZeroU32::new(count).unwrap()
    }

    /// What a limit admits at once, and in each of the following hours.
    fn admitted(limit: &Limit) -> (u64, u64) {
        let mut state = State::default();
        let mut spend = |now| {
            let mut count = 0;
            while let Ok(transition) = limit.decide(&state, now, Op::Spend(1))
                && transition.outcome.is_admitted()
            {
                state.apply(transition.next.unwrap());
                count += 1;
            }
            count
        };
        let begin = Timestamp::from_secs(1_700_000_000);
        let at_once = spend(begin);
        let minutes = (1..=600).map(|m| spend(begin.after(Nanos::from_secs(60 * m))));
        (at_once, minutes.sum::<u64>() / 10)
    }

    fn bucket(units: u64, period: Nanos, burst: u64) -> Limit {
        Limit::new(
            TokenBucket::builder(Rate::new(units, period))
                .burst(burst)
                .build()
                .unwrap(),
        )
    }

    #[test]
    fn a_bucket_is_halved_and_divided() {
        let whole = bucket(1_000, Nanos::HOUR, 1_000);
        let fallback = fallback_quota(&whole, nodes(5)).unwrap();
        assert_eq!(admitted(&fallback), (100, 100));
    }

    #[test]
    fn all_nodes_together_admit_at_most_half_of_the_rate() {
        for (units, count) in [(1_000, 3), (10, 4), (3, 7), (1, 50), (7, 1)] {
            let whole = bucket(units, Nanos::MINUTE, units);
            let fallback = fallback_quota(&whole, nodes(count)).unwrap();
            let (_, per_hour) = admitted(&fallback);
            assert!(
                per_hour * u64::from(count) <= units * 30 + u64::from(count),
                "{units} on {count}: {per_hour}"
            );
        }
    }

    #[test]
    fn a_share_below_one_unit_is_one_unit_with_a_longer_period() {
        // One per hour on ten nodes: the share of each is a twentieth.
        let whole = bucket(1, Nanos::HOUR, 1);
        let Quota::TokenBucket(bucket) = *fallback_quota(&whole, nodes(10)).unwrap().quota() else {
            panic!("a bucket stays a bucket");
        };
        assert_eq!(bucket.limit(), 1);
        assert_eq!(bucket.refill_time(), Nanos::from_secs(20 * 3_600));
    }

    #[test]
    fn windows_become_buckets_and_keep_their_unit() {
        let window = tollgate_core::FixedWindow::builder(600, Window::Epoch(Nanos::HOUR));
        let window = Limit::new(window.build().unwrap()).with_unit(QuotaUnit::Bytes);
        let fallback = fallback_quota(&window, nodes(3)).unwrap();
        assert_eq!(fallback.unit(), QuotaUnit::Bytes);
        assert_eq!(admitted(&fallback), (100, 100));
    }

    #[test]
    fn permits_are_divided_too() {
        let permits = Limit::new(Concurrency::new(20, Nanos::MINUTE).unwrap());
        let Quota::Concurrency(share) = *fallback_quota(&permits, nodes(2)).unwrap().quota() else {
            panic!("a concurrency limit stays one");
        };
        assert_eq!((share.limit(), share.lease_duration()), (5, Nanos::MINUTE));
    }

    #[test]
    fn a_limit_that_admits_nothing_has_no_fallback() {
        let shut = Limit::new(TokenBucket::builder(Rate::per_second(0)).build().unwrap());
        assert_eq!(fallback_quota(&shut, nodes(1)), None);
    }
}
