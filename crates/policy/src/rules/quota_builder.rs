//! Builds one window of a quota from a number of units. It does not allocate, so it can run per request.
//!
//! Must not know: files, locations, which request gets which quota.

use tollgate_core::limit::Limit;
use tollgate_core::{InvalidQuota, InvalidReason, Nanos, QuotaUnit};

use crate::algorithm::{self, AlgorithmSpec, StateSharing};
use crate::model::Burst;

/// One window of a quota without its number of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaBuilder {
    /// The algorithm.
    pub spec: AlgorithmSpec,
    /// The burst, if the file sets it; buckets only.
    pub burst: Option<Burst>,
    /// How far below zero later charges may go, in units.
    pub overdraft: u64,
    /// Units that are charged together.
    pub block: u64,
    /// What is counted.
    pub unit: QuotaUnit,
    /// The maximum count over all quotas that share the state; sliding windows only.
    pub ceiling: u64,
    /// Whether all units of the rate are refilled together, each period; token buckets only.
    pub is_stepped: bool,
    /// The units of a new key, and how long a key is remembered after its bucket is full; token buckets only.
    pub initial: Option<(u64, Nanos)>,
}

/// `burst: auto` is the units of this time.
const AUTO_BURST: Nanos = Nanos::from_secs(10);

impl QuotaBuilder {
    /// A builder without burst and overdraft, charging single units.
    #[must_use]
    pub const fn new(spec: AlgorithmSpec, unit: QuotaUnit) -> Self {
        Self {
            spec,
            burst: None,
            overdraft: 0,
            block: 1,
            unit,
            ceiling: 0,
            is_stepped: false,
            initial: None,
        }
    }

    /// Builds the quota with this number of units.
    ///
    /// # Errors
    /// The field that core rejects.
    pub fn build(&self, units: u64) -> Result<Limit, InvalidQuota> {
        // A limit that denies everything cannot have an overdraft, so a tier of zero has none.
        let overdraft = if units == 0 { 0 } else { self.overdraft };
        let limit = algorithm::build(self, units, overdraft)?;
        Ok(limit.with_unit(self.unit))
    }

    /// The burst in units; `None` if it is the number of the rate.
    pub(crate) fn burst_units(&self, units: u64, period: Nanos) -> Option<u64> {
        match self.burst? {
            Burst::Units(burst) => Some(burst),
            Burst::Auto if units == 0 => None,
            Burst::Auto => {
                let worth = u128::from(units).saturating_mul(u128::from(AUTO_BURST.as_nanos()))
                    / u128::from(period.as_nanos().max(1));
                Some(u64::try_from(worth).unwrap_or(u64::MAX).max(self.block))
            }
        }
    }

    /// The same builder with the smallest power of ten as block size that can count this number of units. A rate above
    /// a million per second is too fine for whole nanoseconds, and a log has a maximum number of entries. Requests
    /// always have blocks of one, because each would cost a whole block.
    #[must_use]
    pub fn with_blocks_for(mut self, units: u64) -> Self {
        if self.unit == QuotaUnit::Requests {
            return self;
        }
        let needs_larger_blocks = self.spec.properties().needs_larger_blocks;
        while needs_larger_blocks(&self, units)
            && let Some(block) = self.block.checked_mul(10)
        {
            self.block = block;
        }
        self
    }

    /// Whether whole nanoseconds cannot express this rate within 0.1 %.
    pub(crate) fn is_rate_too_fine(&self, units: u64) -> bool {
        let plain = Self {
            burst: None,
            overdraft: 0,
            ..*self
        };
        plain
            .build(units)
            .is_err_and(|error| error.reason == InvalidReason::RateTooFine)
    }

    /// Whether quotas of both builders can use the same state one after another without losing each other's counts.
    #[must_use]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        let same_counting = match self.spec.properties().sharing {
            StateSharing::Any => self.spec.algorithm() == other.spec.algorithm(),
            StateSharing::SameBlock => {
                self.spec.algorithm() == other.spec.algorithm() && self.block == other.block
            }
            StateSharing::SamePeriod => self.spec == other.spec,
        };
        // Steps of different lengths read the same state at different instants, and a key is new under both quotas or under none.
        let remember = |builder: &Self| builder.initial.map(|(_, remember)| remember);
        let same_steps = self.is_stepped == other.is_stepped
            && (!self.is_stepped || self.spec == other.spec)
            && remember(self) == remember(other);
        same_counting && same_steps && self.unit == other.unit
    }

    /// The period, or the length of a window.
    #[must_use]
    pub const fn span(&self) -> Option<Nanos> {
        self.spec.span()
    }
}

#[cfg(test)]
mod tests {
    use tollgate_core::limit::Quota;

    use super::*;

    fn bucket(unit: QuotaUnit) -> QuotaBuilder {
        QuotaBuilder::new(AlgorithmSpec::TokenBucket(Nanos::SECOND), unit)
    }

    #[test]
    fn blocks_are_the_smallest_that_keep_the_rate_within_a_thousandth() {
        for units in [999_999, 2_000_000, 3_000_000, 700_000_000, 123_456_789_012] {
            let builder = bucket(QuotaUnit::Bytes).with_blocks_for(units);
            let block = builder.block;
            let mut smaller = builder;
            smaller.block /= 10;
            assert!(block == 1 || smaller.build(units).is_err(), "{units}");
            let Quota::TokenBucket(built) = *builder.build(units).unwrap().quota() else {
                panic!("a bucket is a bucket");
            };
            let in_force =
                u128::from(block) * 1_000_000_000 * 1_000 / u128::from(built.interval().as_nanos());
            assert!(in_force <= u128::from(units) * 1_000, "never above");
            assert!(in_force >= u128::from(units) * 999, "within 0.1 %");
        }
    }

    #[test]
    fn requests_are_never_charged_in_blocks() {
        assert_eq!(
            bucket(QuotaUnit::Requests).with_blocks_for(3_000_000).block,
            1
        );
    }

    #[test]
    fn a_leaky_bucket_admits_its_burst_and_a_queue_its_burst_plus_one() {
        let meter = QuotaBuilder::new(
            AlgorithmSpec::LeakyBucket(Nanos::SECOND),
            QuotaUnit::Requests,
        );
        let queue = QuotaBuilder::new(
            AlgorithmSpec::LeakyQueue(Nanos::SECOND),
            QuotaUnit::Requests,
        );
        let at_once = |limit: Limit| match limit.quota() {
            Quota::LeakyBucket(bucket) => bucket.limit(),
            _ => 0,
        };
        assert_eq!(at_once(meter.build(10).unwrap()), 10);
        assert_eq!(at_once(queue.build(10).unwrap()), 11);
        assert_eq!(at_once(meter.build(0).unwrap()), 0);
        assert_eq!(at_once(queue.build(0).unwrap()), 0);
    }

    #[test]
    fn burst_auto_is_the_units_of_ten_seconds_and_at_least_one() {
        let auto = |units, period| {
            let mut builder =
                QuotaBuilder::new(AlgorithmSpec::TokenBucket(period), QuotaUnit::Requests);
            builder.burst = Some(Burst::Auto);
            match builder.build(units).unwrap().quota() {
                Quota::TokenBucket(bucket) => bucket.limit(),
                _ => 0,
            }
        };
        assert_eq!(auto(1_200, Nanos::MINUTE), 200);
        assert_eq!(auto(2, Nanos::MINUTE), 1);
        assert_eq!(auto(5, Nanos::SECOND), 50);
        assert_eq!(auto(0, Nanos::SECOND), 0);
    }
}
