//! Builds a sliding window log: the limit and the window, within what a log may hold.

use core::num::NonZeroU64;

use crate::error::{InvalidQuota, InvalidReason};
use crate::time::{MAX_CAPACITY, Nanos};

/// The most entries that one log may hold, and so the largest limit and overdraft together, in blocks.
pub const MAX_LOG_ENTRIES: u64 = 10_000;

/// A compiled sliding window log quota.
///
/// ```
/// use tollgate_core::{Nanos, Outcome, SlidingLog, Timestamp};
/// use tollgate_core::sliding_log::Log;
///
/// let quota = SlidingLog::builder(2, Nanos::MINUTE).build()?;
/// let mut log = Log::default();
/// for second in [10, 20] {
///     let transition = quota.decide(&log, Timestamp::from_secs(second), 1);
///     assert_eq!(transition.outcome, Outcome::Allow);
///     log.apply(transition.next.unwrap());
/// }
/// let denied = quota.decide(&log, Timestamp::from_secs(30), 1);
/// assert_eq!(denied.outcome, Outcome::Deny { retry_after: Nanos::from_secs(40) });
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingLog {
    /// Blocks admitted in any window.
    pub(super) limit: u64,
    /// Blocks above which charges no longer count: the limit and the overdraft.
    pub(super) saturation: u64,
    /// Units that are charged together.
    pub(super) block: NonZeroU64,
    /// The window in microseconds, rounded up.
    pub(super) window: u64,
    /// How long entries are kept, in microseconds: the longest window that shares the log.
    pub(super) retention: u64,
}

impl SlidingLog {
    /// Starts a quota of `limit` units in any window of this length.
    pub const fn builder(limit: u64, window: Nanos) -> SlidingLogBuilder {
        SlidingLogBuilder {
            limit,
            window,
            overdraft: 0,
            block: 1,
        }
    }

    /// Units admitted in any window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit.saturating_mul(self.block.get())
    }

    /// The window in force, in whole microseconds.
    #[must_use]
    pub const fn window(&self) -> Nanos {
        Nanos::from_micros(self.window)
    }

    /// Units that are charged together. A cost is rounded up to whole blocks.
    #[must_use]
    pub const fn block(&self) -> u64 {
        self.block.get()
    }

    /// Blocks admitted in any window.
    #[must_use]
    pub const fn limit_blocks(&self) -> u64 {
        self.limit
    }

    /// Blocks above which charges no longer count: the limit and the overdraft.
    #[must_use]
    pub const fn saturation_blocks(&self) -> u64 {
        self.saturation
    }

    /// How long entries are kept: the longest window that shares the log.
    #[must_use]
    pub const fn retention(&self) -> Nanos {
        Nanos::from_micros(self.retention)
    }

    /// The same quota, which keeps entries as long as `other` needs them. Quotas that decide on the same log must keep it for the longest
    /// of their windows. Otherwise alternating between them drops charges.
    #[must_use]
    pub const fn sharing_state_with(mut self, other: &Self) -> Self {
        if other.retention > self.retention {
            self.retention = other.retention;
        }
        self
    }
}

/// The fields of a sliding window log before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SlidingLogBuilder {
    limit: u64,
    window: Nanos,
    overdraft: u64,
    block: u64,
}

impl SlidingLogBuilder {
    /// How far `charge: always` may count beyond the limit, in units.
    pub const fn overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Charges in blocks of this many units, rounded up, so that a limit in bytes fits a log. Entries count blocks, so a log must not be
    /// shared with, or handed on to, a quota with another block: that is another limit.
    pub const fn block(mut self, units: u64) -> Self {
        self.block = units;
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// A window of zero length or longer than 146 years, or more than [`MAX_LOG_ENTRIES`] blocks.
    pub fn build(self) -> Result<SlidingLog, InvalidQuota> {
        let invalid = |field, value, reason, nearest| InvalidQuota {
            field,
            value,
            reason,
            nearest,
        };
        let block = NonZeroU64::new(self.block)
            .ok_or_else(|| invalid("block", 0, InvalidReason::Zero, Some(1)))?;
        if self.window.is_zero() {
            return Err(invalid("window", 0, InvalidReason::Zero, Some(1)));
        }
        if self.window > MAX_CAPACITY {
            let nearest = Some(MAX_CAPACITY.as_nanos());
            return Err(invalid(
                "window",
                self.window.as_nanos(),
                InvalidReason::TooLarge,
                nearest,
            ));
        }
        let most = MAX_LOG_ENTRIES.saturating_mul(block.get());
        let limit = self.limit / block;
        if limit > MAX_LOG_ENTRIES {
            return Err(invalid(
                "limit",
                self.limit,
                InvalidReason::TooLarge,
                Some(most),
            ));
        }
        if limit == 0 && self.limit > 0 {
            return Err(invalid(
                "limit",
                self.limit,
                InvalidReason::BelowOneBlock,
                Some(block.get()),
            ));
        }
        let overdraft = self.overdraft.div_ceil(block.get());
        let room = MAX_LOG_ENTRIES.saturating_sub(limit);
        if overdraft > room {
            let nearest = Some(room.saturating_mul(block.get()));
            return Err(invalid(
                "overdraft",
                self.overdraft,
                InvalidReason::TooLarge,
                nearest,
            ));
        }
        let window = self.window.as_nanos().div_ceil(1_000);
        let saturation = limit.saturating_add(overdraft);
        Ok(SlidingLog {
            limit,
            saturation,
            block,
            window,
            retention: window,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_beyond_what_a_log_holds_is_rejected_until_it_is_charged_in_blocks() {
        let error = SlidingLog::builder(1_000_000, Nanos::MINUTE)
            .build()
            .unwrap_err();
        assert_eq!((error.field, error.nearest), ("limit", Some(10_000)));
        let bytes = SlidingLog::builder(1_000_000, Nanos::MINUTE)
            .block(1_000)
            .build()
            .unwrap();
        assert_eq!(bytes.limit(), 1_000_000);
    }

    #[test]
    fn errors_name_the_field() {
        let field = |b: SlidingLogBuilder| b.build().unwrap_err().field;
        assert_eq!(field(SlidingLog::builder(1, Nanos::ZERO)), "window");
        assert_eq!(field(SlidingLog::builder(1, Nanos::MAX)), "window");
        assert_eq!(
            field(SlidingLog::builder(1, Nanos::DAY).overdraft(10_000)),
            "overdraft"
        );
        assert_eq!(field(SlidingLog::builder(1, Nanos::DAY).block(0)), "block");
        assert_eq!(field(SlidingLog::builder(5, Nanos::DAY).block(10)), "limit");
    }
}
