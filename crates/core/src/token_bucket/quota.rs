//! Builds a token bucket: converts a rate to whole nanoseconds, once, and names every error.

use core::num::NonZeroU64;

use crate::error::{InvalidQuota, InvalidReason};
use crate::outcome::QuotaStatus;
use crate::rate::Rate;
use crate::time::{MAX_CAPACITY, Nanos};

/// A compiled token bucket quota.
///
/// One token is one emission interval of time, `ceil(period / limit)`; the capacity is `burst` of them. The interval is rounded once and
/// upwards, so a burst of B is exactly B and the rate is never above the requested one. The rate in force is
/// [`interval`](Self::interval). If it would be more than 0.1 % below the requested rate, the quota cannot be built.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, Rate, Timestamp, TokenBucket};
///
/// let bucket = TokenBucket::builder(Rate::per_second(10)).burst(2).build()?;
/// let now = Timestamp::from_secs(1_700_000_000);
///
/// let first = bucket.decide(0, now, 2);
/// assert_eq!(first.outcome, Outcome::Allow);
/// let tat = first.next.unwrap();
///
/// let second = bucket.decide(tat, now, 1);
/// assert_eq!(second.outcome, Outcome::Deny { retry_after: Nanos::from_millis(100) });
/// assert_eq!(second.next, None, "a denial changes nothing");
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenBucket {
    /// Debt of one block, in nanoseconds.
    pub(super) interval: NonZeroU64,
    /// `u64::MAX` divided by the interval, so that a decision multiplies instead of dividing.
    reciprocal: u64,
    /// Units that are charged together; one unless the rate is too fine for whole nanoseconds.
    pub(super) block: NonZeroU64,
    /// Blocks admitted at once from a full bucket.
    pub(super) burst: u64,
    /// `burst` intervals: the debt above which requests are denied, in nanoseconds.
    pub(super) capacity: u64,
    /// The debt above which charges no longer count: the capacity and the overdraft.
    pub(super) saturation: u64,
    /// The largest debt that state may hold, over every quota that shares it.
    pub(super) ceiling: u64,
}

impl TokenBucket {
    /// Starts a quota that refills at `rate`. The default burst is the units of the rate.
    pub const fn builder(rate: Rate) -> TokenBucketBuilder {
        TokenBucketBuilder {
            rate,
            burst: None,
            overdraft: 0,
            block: 1,
        }
    }

    /// The most units admitted at once.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.burst.saturating_mul(self.block.get())
    }

    /// Time in which one [`block`](Self::block) is refilled: the rate in force.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        Nanos::from_nanos(self.interval.get())
    }

    /// Units that are charged together. A cost is rounded up to whole blocks.
    #[must_use]
    pub const fn block(&self) -> u64 {
        self.block.get()
    }

    /// Blocks admitted at once from a full bucket.
    pub(crate) const fn burst_blocks(&self) -> u64 {
        self.burst
    }

    /// How many whole blocks of debt fit into a span: the span divided by the interval, rounded down.
    ///
    /// The reciprocal m is the largest with m · interval < 2^64, so the high half of span · m is the quotient or one less; comparing the
    /// remainder tells which. A division would cost more than all other steps of a decision.
    #[inline]
    pub(crate) fn whole_blocks(&self, span: u64) -> u64 {
        let product = u128::from(span).wrapping_mul(u128::from(self.reciprocal));
        let quotient = u64::try_from(product >> 64).unwrap_or(u64::MAX);
        let rest = span.wrapping_sub(quotient.wrapping_mul(self.interval.get()));
        quotient.wrapping_add(u64::from(rest >= self.interval.get()))
    }

    /// The size of a block as a divisor.
    pub(crate) const fn block_size(&self) -> NonZeroU64 {
        self.block
    }

    /// This quota with `blocks` blocks less capacity, because they are leased. The ceiling of the state stays.
    pub(crate) const fn without_blocks(mut self, blocks: u64) -> Self {
        self.burst = self.burst.saturating_sub(blocks);
        self.capacity = self.burst.saturating_mul(self.interval.get());
        self
    }

    /// Time in which an empty bucket becomes full.
    #[must_use]
    pub const fn refill_time(&self) -> Nanos {
        Nanos::from_nanos(self.capacity)
    }

    /// A refill time without the rounding of the interval, for people and header fields.
    ///
    /// The interval is rounded up to whole nanoseconds, so 9 per second take 8 ns more than one second. Rounded up to seconds that
    /// would be 2. `refill_time` may differ from this bucket's, if a wait was added to its capacity.
    #[must_use]
    pub const fn stated_window(&self, refill_time: Nanos) -> Nanos {
        let exact = refill_time.as_nanos();
        let excess = exact.checked_rem(Nanos::SECOND.as_nanos());
        match (excess, exact.checked_div(self.interval.get())) {
            (Some(excess), Some(intervals)) if excess < intervals => {
                Nanos::from_nanos(exact.saturating_sub(excess))
            }
            _ => refill_time,
        }
    }

    /// The time to the next unit of an exhausted bucket: the debt, minus the debt at which one more unit is admitted. Zero while
    /// something remains.
    #[must_use]
    pub const fn time_to_next_unit(&self, refill_time: Nanos, status: &QuotaStatus) -> Nanos {
        match status.remaining {
            0 => status
                .reset_after
                .saturating_add(self.interval())
                .saturating_sub(refill_time),
            _ => Nanos::ZERO,
        }
    }

    /// The debt above which charges no longer count: the refill and the overdraft.
    #[must_use]
    pub const fn saturation(&self) -> Nanos {
        Nanos::from_nanos(self.saturation)
    }

    /// The furthest that the state may lie ahead of now. Anything beyond is lowered to it.
    #[must_use]
    pub const fn ceiling(&self) -> Nanos {
        Nanos::from_nanos(self.ceiling)
    }

    /// The same quota with `more` overdraft in addition, for charges that other nodes have admitted and that must count.
    #[must_use]
    pub const fn with_extra_overdraft(mut self, more: Nanos) -> Self {
        let most = MAX_CAPACITY.as_nanos();
        let saturation = self.saturation.saturating_add(more.as_nanos());
        self.saturation = if saturation < most { saturation } else { most };
        if self.saturation > self.ceiling {
            self.ceiling = self.saturation;
        }
        self
    }

    /// The same quota, which accepts as much debt in its state as `other` does.
    ///
    /// Quotas that decide on the same state (the tiers of one limit, or a quota and its replacement) must share the largest ceiling.
    /// Otherwise the smaller one forgives debt that the larger one has allowed, and a client that alternates between them gains tokens.
    #[must_use]
    pub const fn sharing_state_with(mut self, other: &Self) -> Self {
        if other.ceiling > self.ceiling {
            self.ceiling = other.ceiling;
        }
        self
    }
}

/// The fields of a token bucket before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct TokenBucketBuilder {
    rate: Rate,
    burst: Option<u64>,
    overdraft: u64,
    block: u64,
}

impl TokenBucketBuilder {
    /// The most units admitted at once from a full bucket.
    pub const fn burst(mut self, units: u64) -> Self {
        self.burst = Some(units);
        self
    }

    /// How far `charge: always` may go into debt beyond an empty bucket, in units.
    pub const fn overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Charge in blocks of this many units, rounded up. For rates so high (bytes) that one unit is less than a
    /// nanosecond's worth.
    pub const fn block(mut self, units: u64) -> Self {
        self.block = units;
        self
    }

    /// The rate, and the units of one block.
    pub(crate) const fn rate_and_block(&self) -> (Rate, u64) {
        (self.rate, self.block)
    }

    /// The same bucket at another rate. The default burst stays.
    pub(crate) const fn with_rate(mut self, rate: Rate) -> Self {
        if self.burst.is_none() {
            self.burst = Some(self.rate.units);
        }
        self.rate = rate;
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// Names the first field that cannot be honoured exactly, and its nearest valid value.
    pub fn build(self) -> Result<TokenBucket, InvalidQuota> {
        self.build_with_extra(0)
    }

    /// Like [`build`](Self::build) with `extra` more blocks of capacity, for the request that a leaky bucket is serving.
    pub(crate) fn build_with_extra(self, extra: u64) -> Result<TokenBucket, InvalidQuota> {
        let invalid = |field, value, reason, nearest| InvalidQuota {
            field,
            value,
            reason,
            nearest,
        };
        let block = NonZeroU64::new(self.block)
            .ok_or_else(|| invalid("block", 0, InvalidReason::Zero, Some(1)))?;
        if self.rate.period.is_zero() {
            return Err(invalid("period", 0, InvalidReason::Zero, Some(1)));
        }
        if self.rate.units == 0 {
            return self.deny_all(block);
        }
        let interval = self.interval(block)?;
        let burst_units = self.burst.unwrap_or(self.rate.units);
        let max_blocks = MAX_CAPACITY.as_nanos() / interval;
        let burst = (burst_units / block).saturating_add(extra);
        if burst == 0 {
            return Err(if burst_units == 0 {
                invalid("burst", 0, InvalidReason::Zero, Some(block.get()))
            } else {
                invalid(
                    "burst",
                    burst_units,
                    InvalidReason::BelowOneBlock,
                    Some(block.get()),
                )
            });
        }
        if burst > max_blocks {
            let most = max_blocks.saturating_sub(extra).saturating_mul(block.get());
            return Err(invalid(
                "burst",
                burst_units,
                InvalidReason::RefillTooLong,
                Some(most),
            ));
        }
        let overdraft = self.overdraft.div_ceil(block.get());
        let room = max_blocks.saturating_sub(burst);
        if overdraft > room {
            let most = room.saturating_mul(block.get());
            return Err(invalid(
                "overdraft",
                self.overdraft,
                InvalidReason::RefillTooLong,
                Some(most),
            ));
        }
        let capacity = burst.saturating_mul(interval.get());
        let saturation = burst
            .saturating_add(overdraft)
            .saturating_mul(interval.get());
        Ok(TokenBucket {
            interval,
            reciprocal: u64::MAX / interval,
            block,
            burst,
            capacity,
            saturation,
            ceiling: saturation,
        })
    }

    /// A rate of zero: every cost is above the capacity of zero.
    fn deny_all(self, block: NonZeroU64) -> Result<TokenBucket, InvalidQuota> {
        let unused = |field, value| InvalidQuota {
            field,
            value,
            reason: InvalidReason::LimitIsZero,
            nearest: Some(0),
        };
        match (self.burst, self.overdraft) {
            (None | Some(0), 0) => Ok(TokenBucket {
                interval: NonZeroU64::MIN,
                reciprocal: u64::MAX,
                block,
                burst: 0,
                capacity: 0,
                saturation: 0,
                ceiling: 0,
            }),
            (None | Some(0), overdraft) => Err(unused("overdraft", overdraft)),
            (Some(burst), _) => Err(unused("burst", burst)),
        }
    }

    /// The emission interval of one block: rounded up once, within 0.1 % of the requested one.
    fn interval(self, block: NonZeroU64) -> Result<NonZeroU64, InvalidQuota> {
        let Some(exact) = emission_interval(self.rate.units, self.rate.period, block) else {
            return Err(InvalidQuota {
                field: "limit",
                value: self.rate.units,
                reason: InvalidReason::RefillTooLong,
                nearest: slowest_rate(self.rate.period, block),
            });
        };
        if is_within_tolerance(exact, self.rate.units, self.rate.period, block) {
            return Ok(exact);
        }
        Err(InvalidQuota {
            field: "limit",
            value: self.rate.units,
            reason: InvalidReason::RateTooFine,
            nearest: nearest_rate(self.rate.units, self.rate.period, block, exact),
        })
    }
}

/// `ceil(period · block / units)`, or `None` if that is longer than a state can express.
fn emission_interval(units: u64, period: Nanos, block: NonZeroU64) -> Option<NonZeroU64> {
    let span = u128::from(period.as_nanos()).saturating_mul(u128::from(block.get()));
    let interval = span.div_ceil(u128::from(units.max(1)));
    let interval = u64::try_from(interval)
        .ok()
        .filter(|n| *n <= MAX_CAPACITY.as_nanos())?;
    NonZeroU64::new(interval)
}

/// Whether the rate in force is within 0.1 % of the requested one: `1 − (period · block) / (interval · units) ≤ 1/1000`.
fn is_within_tolerance(interval: NonZeroU64, units: u64, period: Nanos, block: NonZeroU64) -> bool {
    let requested = u128::from(period.as_nanos()).saturating_mul(u128::from(block.get()));
    let in_force = u128::from(interval.get()).saturating_mul(u128::from(units));
    in_force.saturating_sub(requested) <= in_force / 1_000
}

/// The rate nearest to `units` that whole nanoseconds can express.
fn nearest_rate(units: u64, period: Nanos, block: NonZeroU64, interval: NonZeroU64) -> Option<u64> {
    let span = u128::from(period.as_nanos()).saturating_mul(u128::from(block.get()));
    let at = |interval: u64| -> Option<u64> {
        let interval = NonZeroU64::new(interval)?;
        let units = u64::try_from(span.div_ceil(u128::from(interval.get()))).ok()?;
        let rounded = emission_interval(units, period, block)?;
        is_within_tolerance(rounded, units, period, block).then_some(units)
    };
    let below = at(interval.get());
    let above = at(interval.get().saturating_sub(1));
    match (below, above) {
        (Some(below), Some(above)) if above.abs_diff(units) < below.abs_diff(units) => Some(above),
        (Some(below), _) => Some(below),
        (None, above) => above,
    }
}

/// The slowest_rate rate whose interval still fits, for a period so long that the interval of the requested rate does not.
fn slowest_rate(period: Nanos, block: NonZeroU64) -> Option<u64> {
    let span = u128::from(period.as_nanos()).saturating_mul(u128::from(block.get()));
    u64::try_from(span.div_ceil(u128::from(MAX_CAPACITY.as_nanos()))).ok()
}

#[cfg(test)]
mod tests;
