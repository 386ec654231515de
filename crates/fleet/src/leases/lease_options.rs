//! How a node requests leases: their duration, their size, and the pauses between requests.
//!
//! Must not know: keys, leases, brokers.

use std::num::NonZeroU32;

use tollgate_core::{Nanos, Timestamp, TokenBucket};

/// How leases are requested and returned. All durations are by this node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// How long the broker waits for a lease before it counts it as spent: the cost of a node that crashes.
    pub duration: Nanos,
    /// How much earlier the node stops using a lease: the most that two clocks drift apart in one duration.
    pub margin: Nanos,
    /// A lease that was not used for this long is returned.
    pub idle: Nanos,
    /// After a refusal the broker is not asked again before this, even if units might be available.
    pub min_pause: Nanos,
    /// After a refusal the broker is asked again after this, even if its wait is longer: other nodes return leases.
    pub max_pause: Nanos,
    /// A key is leased once it has about so many requests in a second on this node. One request with a lease and one
    /// without it cost one call each, so a lease pays from the second request on; the margin keeps keys from going back
    /// and forth. A leased key goes back to single calls when it was not used for `idle`.
    pub lease_from: u64,
    /// The most keys with leases. Requests of other keys are decided by the broker.
    pub max_keys: usize,
}

impl Default for LeaseOptions {
    fn default() -> Self {
        Self {
            duration: Nanos::from_secs(4),
            margin: Nanos::from_millis(40),
            idle: Nanos::from_secs(1),
            min_pause: Nanos::from_millis(5),
            max_pause: Nanos::SECOND,
            lease_from: 4,
            max_keys: 65_536,
        }
    }
}

/// A lease that is used up within this time is followed by a larger one.
const GROW_WITHIN: Nanos = Nanos::from_millis(250);
/// A lease that lasts longer than this is followed by a smaller one.
const SHRINK_AFTER: Nanos = Nanos::from_secs(1);

/// The size of leases. It starts with half of the requests that make a key hot, or with what is needed. It doubles if a lease is used up soon, and halves if it lasts. It
/// never exceeds a fair share of the limit, so small limits are leased unit by unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct LeaseSize {
    units: u64,
    borrowed_at: Option<Timestamp>,
}

impl LeaseSize {
    /// A first lease of so many units, if they are a fair share.
    pub(super) const fn starting_with(units: u64) -> Self {
        Self {
            units,
            borrowed_at: None,
        }
    }

    /// The units to request for a node that needs `need` at once.
    pub(super) fn units_to_request(
        &self,
        bucket: &TokenBucket,
        nodes: NonZeroU32,
        need: u64,
    ) -> u64 {
        let block = bucket.block().max(1);
        let max = self
            .units
            .max(need)
            .min(fair_share(bucket, nodes))
            .max(need);
        // Only whole blocks are granted.
        max.div_ceil(block)
            .saturating_mul(block)
            .min(bucket.limit())
    }

    /// The units of a lease that are left when the next one is requested: none if leases are small.
    pub(super) const fn reserve(&self) -> u64 {
        self.units / 4
    }

    /// Records a grant.
    pub(super) fn record_grant(&mut self, now: Timestamp, units: u64) {
        let since = self.borrowed_at.map(|before| now.since(before));
        self.units = match since {
            Some(since) if since < GROW_WITHIN => self.units.max(units).saturating_mul(2),
            Some(since) if since > SHRINK_AFTER => self.units / 2,
            _ => self.units.max(1),
        };
        // The fair share depends on the quota and is applied later; this only prevents overflow.
        self.units = self.units.min(1 << 40);
        self.borrowed_at = Some(now);
    }

    /// Caps the size.
    pub(super) fn cap(&mut self, max: u64) {
        self.units = self.units.min(max);
    }
}

/// The most units of one lease: half of the node's share, because a node may hold two leases.
pub(super) fn fair_share(bucket: &TokenBucket, nodes: NonZeroU32) -> u64 {
    bucket.limit() / u64::from(nodes.get()).saturating_mul(2)
}

#[cfg(test)]
mod tests {
    use tollgate_core::Rate;

    use super::*;

    fn bucket(burst: u64) -> TokenBucket {
        let rate = Rate::per_second(burst);
        TokenBucket::builder(rate).burst(burst).build().unwrap()
    }

    fn nodes(n: u32) -> NonZeroU32 {
        NonZeroU32::new(n).unwrap()
    }

    #[test]
    fn leases_grow_with_demand_up_to_a_fair_share_and_shrink_without() {
        let (bucket, nodes) = (bucket(1_000), nodes(3));
        let mut size = LeaseSize::default();
        let mut now = Timestamp::from_secs(100);
        let mut sizes = Vec::new();
        for _ in 0..10 {
            let units = size.units_to_request(&bucket, nodes, 1);
            sizes.push(units);
            size.record_grant(now, units);
            size.cap(fair_share(&bucket, nodes));
            now = now.after(Nanos::from_millis(10));
        }
        assert_eq!(sizes, [1, 1, 2, 4, 8, 16, 32, 64, 128, 166]);
        for _ in 0..10 {
            now = now.after(Nanos::from_secs(5));
            let units = size.units_to_request(&bucket, nodes, 1);
            size.record_grant(now, units);
        }
        assert_eq!(size.units_to_request(&bucket, nodes, 1), 1);
    }

    #[test]
    fn small_limits_are_leased_unit_by_unit_and_the_needed_units_are_always_requested() {
        let mut size = LeaseSize::default();
        let now = Timestamp::from_secs(100);
        for _ in 0..10 {
            size.record_grant(now, 1);
        }
        assert_eq!(size.units_to_request(&bucket(5), nodes(3), 1), 1);
        assert_eq!(size.units_to_request(&bucket(5), nodes(3), 4), 4);
        assert_eq!(size.units_to_request(&bucket(100), nodes(1), 1), 50);
    }

    #[test]
    fn only_whole_blocks_are_requested() {
        let rate = Rate::per_second(1_000_000);
        let bucket = TokenBucket::builder(rate).burst(5_000).block(1_000);
        let bucket = bucket.build().unwrap();
        assert_eq!(
            LeaseSize::default().units_to_request(&bucket, nodes(1), 1),
            1_000
        );
        assert_eq!(
            LeaseSize::default().units_to_request(&bucket, nodes(1), 4_001),
            5_000
        );
    }
}
