//! How much a mode may admit beyond the limit, in the terms of guarantees: so many bursts for so many events.
//!
//! Amounts are nanoseconds of refill, as buckets count. Must not know: histories.

use std::time::Duration;

use tollgate_core::TokenBucket;

/// A bucket as its promise needs it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bucket {
    /// Nanoseconds in which one unit is refilled.
    pub interval: u64,
    /// Units that are admitted at once.
    pub burst: u64,
}

impl Bucket {
    /// Nanoseconds in which so many units are refilled.
    #[must_use]
    pub fn price(&self, units: u64) -> i128 {
        i128::from(self.interval) * i128::from(units)
    }

    /// Nanoseconds in which it is full again.
    #[must_use]
    pub fn capacity(&self) -> i128 {
        self.price(self.burst)
    }
}

impl From<&TokenBucket> for Bucket {
    fn from(bucket: &TokenBucket) -> Self {
        Self {
            interval: bucket.interval().as_nanos(),
            burst: bucket.limit(),
        }
    }
}

/// What a bucket and its mode admit in a window of no length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowance {
    bucket: Bucket,
    beyond: i128,
}

impl Allowance {
    /// The limit and nothing beyond: memory, a healthy store, leases.
    #[must_use]
    pub const fn of(bucket: Bucket) -> Self {
        Self { bucket, beyond: 0 }
    }

    /// A burst more for each time that the store lost its state: a crash, an eviction, a failover.
    #[must_use]
    pub fn losses(self, times: u64) -> Self {
        self.bursts(times)
    }

    /// A burst more for each jump of the store's clock ahead. Jumps back add nothing.
    #[must_use]
    pub fn jumps_ahead(self, times: u64) -> Self {
        self.bursts(times)
    }

    /// Two bursts more for each outage, however long: local buckets start full, and the store refills meanwhile.
    #[must_use]
    pub fn outages(self, times: u64) -> Self {
        self.bursts(times.saturating_mul(2))
    }

    /// One burst more for each outage after which local spending is replayed to the store.
    #[must_use]
    pub fn replayed_outages(self, times: u64) -> Self {
        self.bursts(times)
    }

    /// Shares that sum to more than the whole: so many percent beyond it, of a burst and of the refill while that lasted.
    #[must_use]
    pub fn shares_beyond(mut self, percent: u64, lasted: Duration) -> Self {
        let whole = self.bucket.capacity() + nanos(lasted);
        self.beyond += whole * i128::from(percent) / 100;
        self
    }

    /// Counts that are reconciled now and then by so many nodes, at the longest after this.
    #[must_use]
    pub fn reconciled_by(mut self, nodes: u64, longest: Duration) -> Self {
        let others = i128::from(nodes.saturating_sub(1));
        self.beyond += others * (self.bucket.capacity() + nanos(longest));
        self
    }

    /// So many units more: an overdraft, or anonymous refunds that the history does not know.
    #[must_use]
    pub fn units(mut self, units: u64) -> Self {
        self.beyond += self.bucket.price(units);
        self
    }

    /// The bucket.
    #[must_use]
    pub const fn bucket(&self) -> Bucket {
        self.bucket
    }

    /// What may be admitted beyond the limit, in nanoseconds of refill.
    #[must_use]
    pub const fn beyond(&self) -> i128 {
        self.beyond
    }

    fn bursts(mut self, times: u64) -> Self {
        self.beyond += self.bucket.capacity() * i128::from(times);
        self
    }
}

fn nanos(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).unwrap_or(i128::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_event_adds_what_the_promise_says() {
        let bucket = Bucket {
            interval: 10,
            burst: 5,
        };
        let allowed = Allowance::of(bucket);
        assert_eq!(allowed.beyond(), 0);
        assert_eq!(allowed.losses(3).beyond(), 150);
        assert_eq!(allowed.outages(1).beyond(), 100);
        assert_eq!(allowed.replayed_outages(1).beyond(), 50);
        assert_eq!(allowed.jumps_ahead(2).beyond(), 100);
        assert_eq!(allowed.units(2).beyond(), 20);
        let lasted = Duration::from_nanos(50);
        assert_eq!(allowed.shares_beyond(150, lasted).beyond(), 150);
        assert_eq!(allowed.reconciled_by(3, lasted).beyond(), 200);
        assert_eq!(allowed.reconciled_by(1, lasted).beyond(), 0);
    }
}
