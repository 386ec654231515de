//! Builds a leaky bucket from a rate, a burst and a delay.

use crate::error::{InvalidQuota, InvalidReason};
use crate::rate::Rate;
use crate::time::Nanos;
use crate::token_bucket::{TokenBucket, TokenBucketBuilder};

/// A compiled leaky bucket quota.
///
/// ```
/// use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate, Timestamp};
///
/// // limit_req rate=10r/s burst=2;
/// let queue = LeakyBucket::queue(Rate::per_second(10)).burst(2).build()?;
/// let now = Timestamp::from_secs(1_700_000_000);
/// let mut tat = 0;
/// let mut outcomes = [Outcome::Never; 4];
/// for outcome in &mut outcomes {
///     let transition = queue.decide(tat, now, 1);
///     *outcome = transition.outcome;
///     tat = transition.next.unwrap_or(tat);
/// }
/// assert_eq!(outcomes, [
///     Outcome::Allow,
///     Outcome::Wait(Nanos::from_millis(100)),
///     Outcome::Wait(Nanos::from_millis(200)),
///     Outcome::Deny { retry_after: Nanos::from_millis(100) },
/// ]);
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeakyBucket {
    /// The same as a token bucket: one more token than the burst, for the request being served.
    pub(super) bucket: TokenBucket,
    /// How full the bucket may be, in nanoseconds of leaking, before a request has to wait. `None`: no request waits.
    pub(super) delay: Option<u64>,
}

impl LeakyBucket {
    /// A meter: it admits what fits at once (`nodelay`) and denies what does not fit.
    pub const fn meter(rate: Rate) -> LeakyBucketBuilder {
        LeakyBucketBuilder {
            rate,
            burst: 0,
            delay: None,
            overdraft: 0,
        }
    }

    /// A queue: it admits what fits, each request in its turn, and denies what does not fit.
    pub const fn queue(rate: Rate) -> LeakyBucketBuilder {
        LeakyBucketBuilder {
            rate,
            burst: 0,
            delay: Some(0),
            overdraft: 0,
        }
    }

    /// The queue before a token bucket, for refunds of cancelled waits: `bucket` is the token bucket with the longest wait added to its
    /// capacity. A request that waited for it stood in this queue.
    #[must_use]
    pub const fn waiting_for(bucket: TokenBucket) -> Self {
        Self {
            bucket,
            delay: Some(0),
        }
    }

    /// The most units admitted at once: the burst and the one being served.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.bucket.limit()
    }

    /// Time in which one unit leaks out: the rate in force.
    #[must_use]
    pub const fn interval(&self) -> Nanos {
        self.bucket.interval()
    }

    /// The furthest that the state may lie ahead of now.
    #[must_use]
    pub const fn ceiling(&self) -> Nanos {
        self.bucket.ceiling()
    }

    /// The same as a token bucket, for stores that implement the arithmetic themselves.
    #[must_use]
    pub const fn as_token_bucket(&self) -> &TokenBucket {
        &self.bucket
    }

    /// Whether requests may have to wait.
    #[must_use]
    pub const fn is_queue(&self) -> bool {
        self.delay.is_some()
    }

    /// The same quota, which accepts as much in its state as `other` does; see [`TokenBucket::sharing_state_with`].
    #[must_use]
    pub const fn sharing_state_with(mut self, other: &Self) -> Self {
        self.bucket = self.bucket.sharing_state_with(&other.bucket);
        self
    }
}

/// The fields of a leaky bucket before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct LeakyBucketBuilder {
    rate: Rate,
    burst: u64,
    delay: Option<u64>,
    overdraft: u64,
}

impl LeakyBucketBuilder {
    /// Units that may stand in the bucket beside the request being served. Zero by default.
    pub const fn burst(mut self, units: u64) -> Self {
        self.burst = units;
        self
    }

    /// Admits requests without waiting while no more than this many units stand ahead of them.
    pub const fn delay(mut self, units: u64) -> Self {
        self.delay = Some(units);
        self
    }

    /// Admits everything that fits without waiting: a meter.
    pub const fn nodelay(mut self) -> Self {
        self.delay = None;
        self
    }

    /// How far `charge: always` may overfill the bucket, in units.
    pub const fn overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// Names the first field that cannot be honoured exactly, and its nearest valid value.
    pub fn build(self) -> Result<LeakyBucket, InvalidQuota> {
        if let Some(delay) = self.delay
            && delay > self.burst
        {
            return Err(InvalidQuota {
                field: "delay",
                value: delay,
                reason: InvalidReason::TooLarge,
                nearest: Some(self.burst),
            });
        }
        let bucket: TokenBucketBuilder = TokenBucket::builder(self.rate).overdraft(self.overdraft);
        let bucket = if self.rate.units == 0 && self.burst == 0 {
            bucket.build()?
        } else {
            bucket.burst(self.burst).build_with_extra(1)?
        };
        let delay = self.delay.map(|units| bucket.price(units));
        Ok(LeakyBucket { bucket, delay })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_beyond_the_burst_is_refused_with_the_burst_as_the_nearest() {
        let error = LeakyBucket::queue(Rate::per_second(1))
            .burst(5)
            .delay(6)
            .build()
            .unwrap_err();
        assert_eq!((error.field, error.nearest), ("delay", Some(5)));
    }

    #[test]
    fn a_rate_of_zero_admits_not_even_the_first() {
        let bucket = LeakyBucket::queue(Rate::per_second(0)).build().unwrap();
        assert_eq!(bucket.limit(), 0);
        assert!(
            LeakyBucket::meter(Rate::per_second(0))
                .burst(1)
                .build()
                .is_err()
        );
    }

    #[test]
    fn the_burst_stands_beside_the_request_being_served() {
        assert_eq!(
            LeakyBucket::meter(Rate::per_second(10))
                .burst(20)
                .build()
                .unwrap()
                .limit(),
            21
        );
        let too_large = LeakyBucket::meter(Rate::per_year(1))
            .burst(200)
            .build()
            .unwrap_err();
        assert_eq!((too_large.field, too_large.nearest), ("burst", Some(145)));
        assert!(
            LeakyBucket::meter(Rate::per_year(1))
                .burst(145)
                .build()
                .is_ok()
        );
    }
}
