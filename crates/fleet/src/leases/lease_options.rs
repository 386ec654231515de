//! How a node borrows: for how long, how much, and how often at most.
//!
//! Must not know: keys, slices, lenders.

use std::num::NonZeroU32;

use tollgate_core::{Nanos, Timestamp, TokenBucket};

/// How slices are borrowed and given back. All spans are by this node's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseOptions {
    /// How long a lender waits for a slice before it counts it as spent: what a node that dies costs the others.
    pub duration: Nanos,
    /// How much earlier the node stops: as much as two clocks may drift apart in one life.
    pub margin: Nanos,
    /// A slice that nobody has spent from for so long goes back.
    pub idle: Nanos,
    /// After a refusal nobody is asked again before this, even if something might be there: it gathers instead.
    pub min_pause: Nanos,
    /// After a refusal somebody is asked again after this, even if nothing was said to be there: others give back.
    pub max_pause: Nanos,
    /// The most keys that slices are kept of. Whatever does not fit is asked about each time.
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
            max_keys: 65_536,
        }
    }
}

/// A slice that is used up within this is followed by a larger one.
const GROW_WITHIN: Nanos = Nanos::from_millis(250);
/// One that lasts for longer than this is followed by a smaller one.
const SHRINK_AFTER: Nanos = Nanos::from_secs(1);

/// How much is borrowed at once: nothing beyond what is asked for at first, twice as much whenever it is used up soon, half
/// when it lasts. Never more than a fair part of the limit, so a small limit is lent unit by unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct LeaseSize {
    units: u64,
    borrowed_at: Option<Timestamp>,
}

impl LeaseSize {
    /// The most that is wanted now by a node that needs `need` at once.
    pub(super) fn units_to_request(
        &self,
        bucket: &TokenBucket,
        nodes: NonZeroU32,
        need: u64,
    ) -> u64 {
        let block = bucket.block().max(1);
        let most = self
            .units
            .max(need)
            .min(fair_share(bucket, nodes))
            .max(need);
        // Whole blocks are lent.
        most.div_ceil(block)
            .saturating_mul(block)
            .min(bucket.limit())
    }

    /// Units of a slice that are left when the next one is asked for: none where slices are tiny.
    pub(super) const fn reserve(&self) -> u64 {
        self.units / 4
    }

    /// Something was borrowed.
    pub(super) fn record_grant(&mut self, now: Timestamp, units: u64) {
        let since = self.borrowed_at.map(|before| now.since(before));
        self.units = match since {
            Some(since) if since < GROW_WITHIN => self.units.max(units).saturating_mul(2),
            Some(since) if since > SHRINK_AFTER => self.units / 2,
            _ => self.units.max(1),
        };
        // What is fair depends on the quota, and is looked at when something is wanted; this only keeps it within reason.
        self.units = self.units.min(1 << 40);
        self.borrowed_at = Some(now);
    }

    /// The largest that it may be from now on.
    pub(super) fn cap(&mut self, most: u64) {
        self.units = self.units.min(most);
    }
}

/// What one of so many nodes may take at once: half of its part, because it may hold two slices.
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
    fn slices_grow_with_demand_up_to_a_fair_part_and_shrink_without() {
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
    fn small_limits_are_lent_unit_by_unit_and_what_is_needed_is_always_asked_for() {
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
    fn blocks_are_asked_for_whole() {
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
