//! How one window of a quota is made: everything but the number of units, so that a quota that is computed for a
//! request can be made on the way, without allocating.
//!
//! Must not know: files, places, which request gets which quota.

use tollgate_core::limit::Limit;
use tollgate_core::{InvalidQuota, InvalidReason, Nanos, QuotaUnit};

use crate::algorithm::{self, AlgorithmSpec, StateSharing};
use crate::model::Burst;

/// One window of a quota without its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaBuilder {
    /// By which rule it is counted.
    pub spec: AlgorithmSpec,
    /// The most at once where the file says so; buckets only.
    pub burst: Option<Burst>,
    /// How far below zero post-paid charges may go, in units.
    pub overdraft: u64,
    /// Units that are charged together.
    pub block: u64,
    /// What is counted.
    pub unit: QuotaUnit,
    /// The largest count that state may hold, over every quota that shares it; sliding windows only.
    pub ceiling: u64,
}

/// Ten seconds: what `burst: auto` is worth.
const AUTO_BURST: Nanos = Nanos::from_secs(10);

impl QuotaBuilder {
    /// A plain one: no burst of its own, no overdraft, charged unit by unit.
    #[must_use]
    pub const fn new(shape: AlgorithmSpec, unit: QuotaUnit) -> Self {
        Self {
            spec: shape,
            burst: None,
            overdraft: 0,
            block: 1,
            unit,
            ceiling: 0,
        }
    }

    /// The quota of so many units.
    ///
    /// # Errors
    /// Core names the field that it cannot honour.
    pub fn build(&self, units: u64) -> Result<Limit, InvalidQuota> {
        // Nothing may be asked of a limit that denies everything, so a tier of zero needs no overdraft of its own.
        let overdraft = if units == 0 { 0 } else { self.overdraft };
        let limit = algorithm::build(self, units, overdraft)?;
        Ok(limit.with_unit(self.unit))
    }

    /// The burst in units; `None` where it is the rate's own number.
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

    /// The same formula, charging in the smallest blocks of a power of ten with which so many units can be counted:
    /// a rate above a million a second is too fine for whole nanoseconds, and a log holds so many entries. Requests
    /// are never charged in blocks, because each of them would cost a whole one.
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

    /// Whether a state may be decided on by quotas of both recipes, one now and the other later, without either
    /// forgetting what the other has counted.
    #[must_use]
    pub fn shares_state_with(&self, other: &Self) -> bool {
        let same_counting = match self.spec.properties().sharing {
            StateSharing::Any => self.spec.algorithm() == other.spec.algorithm(),
            StateSharing::SameBlock => {
                self.spec.algorithm() == other.spec.algorithm() && self.block == other.block
            }
            StateSharing::SamePeriod => self.spec == other.spec,
        };
        same_counting && self.unit == other.unit
    }

    /// How far the units of a rate reach in time: the period or the length of a window.
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
            let formula = bucket(QuotaUnit::Bytes).with_blocks_for(units);
            let block = formula.block;
            let mut smaller = formula;
            smaller.block /= 10;
            assert!(block == 1 || smaller.build(units).is_err(), "{units}");
            let Quota::TokenBucket(built) = *formula.build(units).unwrap().quota() else {
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
    fn a_leaky_bucket_admits_its_burst_at_once_and_a_queue_holds_its_burst_beside_the_first() {
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
    fn auto_is_ten_seconds_worth_and_at_least_one() {
        let auto = |units, period| {
            let mut formula =
                QuotaBuilder::new(AlgorithmSpec::TokenBucket(period), QuotaUnit::Requests);
            formula.burst = Some(Burst::Auto);
            match formula.build(units).unwrap().quota() {
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
