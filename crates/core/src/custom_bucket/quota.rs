//! Builds a custom bucket from a token bucket, a refill step and initial tokens.

use crate::error::{InvalidQuota, InvalidReason};
use crate::rate::Rate;
use crate::time::{MAX_CAPACITY, Nanos};
use crate::token_bucket::{TokenBucket, TokenBucketBuilder};

/// A compiled custom bucket quota.
///
/// ```
/// use tollgate_core::{CustomBucket, Nanos, Outcome, Rate, Timestamp, TokenBucket};
///
/// // Ten tokens arrive together every second; a new key starts with two.
/// let bucket = TokenBucket::builder(Rate::per_second(10));
/// let quota = CustomBucket::builder(bucket).refill_in_steps().initial(2, Nanos::DAY).build()?;
/// let now = Timestamp::from_secs(1_700_000_000).after(Nanos::from_millis(250));
///
/// let first = quota.decide(0, now, 2);
/// assert_eq!(first.outcome, Outcome::Allow);
/// let second = quota.decide(first.next.unwrap(), now, 1);
/// assert_eq!(second.outcome, Outcome::Deny { retry_after: Nanos::from_millis(750) });
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CustomBucket {
    pub(super) bucket: TokenBucket,
    /// The time between two refills, in nanoseconds; 1 if the bucket refills continuously.
    pub(super) step: u64,
    /// The debt of a new key, in nanoseconds; zero if new keys start full.
    pub(super) initial_debt: u64,
    /// How long a state counts after its debt, in nanoseconds: until the next step, and while the key is remembered.
    pub(super) tail: u64,
}

impl CustomBucket {
    /// Starts from a token bucket.
    pub const fn builder(bucket: TokenBucketBuilder) -> CustomBucketBuilder {
        CustomBucketBuilder {
            bucket,
            in_steps: false,
            initial: None,
        }
    }

    /// The token bucket whose arithmetic decides.
    #[must_use]
    pub const fn as_token_bucket(&self) -> &TokenBucket {
        &self.bucket
    }

    /// The most units admitted at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.bucket.limit()
    }

    /// The time between two refills; one nanosecond if the bucket refills continuously.
    #[must_use]
    pub const fn step(&self) -> Nanos {
        Nanos::from_nanos(self.step)
    }

    /// Whether the bucket refills in steps.
    #[must_use]
    pub const fn refills_in_steps(&self) -> bool {
        self.step > 1
    }

    /// The debt of a new key: the time in which it refills.
    #[must_use]
    pub const fn initial_debt(&self) -> Nanos {
        Nanos::from_nanos(self.initial_debt)
    }

    /// How long a state counts after its debt.
    #[must_use]
    pub const fn tail(&self) -> Nanos {
        Nanos::from_nanos(self.tail)
    }

    /// The units of a new key.
    #[must_use]
    pub fn initial(&self) -> u64 {
        let blocks = self
            .bucket
            .whole_blocks(self.bucket.refill_time().as_nanos());
        let missing = self.bucket.whole_blocks(self.initial_debt);
        blocks
            .saturating_sub(missing)
            .saturating_mul(self.bucket.block())
    }

    /// How long a key is remembered after its bucket is full; zero if new keys start full.
    #[must_use]
    pub const fn remember(&self) -> Nanos {
        Nanos::from_nanos(self.tail.saturating_sub(if self.refills_in_steps() {
            self.step
        } else {
            0
        }))
    }

    /// The same quota, which accepts as much debt in its state as `other` does; see [`TokenBucket::sharing_state_with`]. Both read a state
    /// as new at the same instant.
    #[must_use]
    pub const fn sharing_state_with(mut self, other: &Self) -> Self {
        self.bucket = self.bucket.sharing_state_with(&other.bucket);
        if other.tail > self.tail {
            self.tail = other.tail;
        }
        self
    }
}

/// The fields of a custom bucket before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct CustomBucketBuilder {
    bucket: TokenBucketBuilder,
    in_steps: bool,
    initial: Option<(u64, Nanos)>,
}

impl CustomBucketBuilder {
    /// All units of the rate arrive together, at multiples of the rate's period since 1970.
    pub const fn refill_in_steps(mut self) -> Self {
        self.in_steps = true;
        self
    }

    /// A new key starts with this many units, and is new again when it was full and idle for `remember`.
    pub const fn initial(mut self, units: u64, remember: Nanos) -> Self {
        self.initial = Some((units, remember));
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// Names the first field that cannot be honoured exactly, and its nearest valid value.
    pub fn build(self) -> Result<CustomBucket, InvalidQuota> {
        let (rate, _) = self.bucket.rate_and_block();
        let (bucket, step) = if self.in_steps && rate.units > 0 {
            (stepped_bucket(self.bucket)?, rate.period.as_nanos())
        } else {
            (self.bucket.build()?, 1)
        };
        let too_large = |field, value, nearest| InvalidQuota {
            field,
            value,
            reason: InvalidReason::TooLarge,
            nearest: Some(nearest),
        };
        let limit = bucket.limit();
        let (initial, remember) = self.initial.unwrap_or((limit, Nanos::ZERO));
        if initial > limit {
            return Err(too_large("initial", initial, limit));
        }
        if remember > MAX_CAPACITY {
            let (given, most) = (remember.as_nanos(), MAX_CAPACITY.as_nanos());
            return Err(too_large("remember", given, most));
        }
        if remember.is_zero() && initial < limit {
            // A key would be new again at the very instant at which it is full, and never be able to spend the whole burst.
            return Err(InvalidQuota {
                reason: InvalidReason::Zero,
                ..too_large("remember", 0, 1)
            });
        }
        // Rounded down to whole blocks: a part of a block cannot be spent.
        let missing = bucket
            .burst_blocks()
            .saturating_sub(initial / bucket.block_size());
        let until_next_step = if step > 1 { step } else { 0 };
        Ok(CustomBucket {
            bucket,
            step,
            initial_debt: bucket.price(missing),
            tail: remember.as_nanos().saturating_add(until_next_step),
        })
    }
}

/// The bucket of a quota that refills in steps. Its emission interval is rounded down, so that the blocks of a step never take longer than
/// the step; a decision rounds the debt up to whole blocks instead.
fn stepped_bucket(builder: TokenBucketBuilder) -> Result<TokenBucket, InvalidQuota> {
    let (rate, block) = builder.rate_and_block();
    let too_fine = InvalidQuota {
        field: "limit",
        value: rate.units,
        reason: InvalidReason::RateTooFine,
        nearest: None,
    };
    let per_step = rate.units.checked_div(block).unwrap_or(0);
    let whole = rate.units.checked_rem(block) == Some(0);
    let interval = rate.period.as_nanos().checked_div(per_step).unwrap_or(0);
    if !whole || interval == 0 {
        return Err(too_fine);
    }
    let bucket = builder
        .with_rate(Rate::new(block, Nanos::from_nanos(interval)))
        .build()?;
    // Each step leaves this much of the debt of its blocks. Together it must stay below one block while the largest debt is paid.
    let rest = rate.period.as_nanos().checked_rem(per_step).unwrap_or(0);
    let steps = bucket
        .ceiling()
        .as_nanos()
        .div_ceil(rate.period.as_nanos().max(1));
    if rest.saturating_mul(steps.saturating_add(1)) >= interval {
        return Err(too_fine);
    }
    Ok(bucket)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ten() -> CustomBucketBuilder {
        CustomBucket::builder(TokenBucket::builder(Rate::per_second(10)).burst(20))
    }

    #[test]
    fn invalid_fields_are_refused_with_the_nearest_valid_value() {
        let error = ten().initial(21, Nanos::DAY).build().unwrap_err();
        assert_eq!((error.field, error.nearest), ("initial", Some(20)));
        let error = ten().initial(1, Nanos::MAX).build().unwrap_err();
        assert_eq!((error.field, error.nearest), ("remember", Some(1 << 62)));
        let error = ten().initial(1, Nanos::ZERO).build().unwrap_err();
        assert_eq!((error.field, error.nearest), ("remember", Some(1)));
        let bucket = TokenBucket::builder(Rate::per_second(999_999));
        let error = CustomBucket::builder(bucket)
            .refill_in_steps()
            .build()
            .unwrap_err();
        assert_eq!(
            (error.field, error.reason),
            ("limit", InvalidReason::RateTooFine)
        );
    }

    #[test]
    fn a_step_is_the_period_of_the_rate_even_if_its_units_do_not_divide_it() {
        for units in [1, 3, 7, 10, 60, 30_000] {
            let bucket = TokenBucket::builder(Rate::per_second(units));
            let quota = CustomBucket::builder(bucket)
                .refill_in_steps()
                .build()
                .unwrap();
            assert_eq!((quota.step(), quota.limit()), (Nanos::SECOND, units));
        }
    }

    #[test]
    fn fields_are_read_back_as_they_were_set() {
        let quota = ten()
            .refill_in_steps()
            .initial(7, Nanos::HOUR)
            .build()
            .unwrap();
        assert_eq!((quota.initial(), quota.remember()), (7, Nanos::HOUR));
        assert!(quota.refills_in_steps());
        let plain = ten().build().unwrap();
        assert_eq!((plain.initial(), plain.remember()), (20, Nanos::ZERO));
        assert!(!plain.refills_in_steps());
    }
}
