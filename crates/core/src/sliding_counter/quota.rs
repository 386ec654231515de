//! Builds a sliding window counter: the limit, the window, and a tick coarse enough to multiply them.

use core::num::NonZeroU64;

use crate::error::{InvalidQuota, InvalidReason};
use crate::time::{MAX_CAPACITY, Nanos};

/// The largest product of a count and a window in ticks: exact in a double, with a bit to spare.
const MAX_PRODUCT: u64 = 1 << 52;

/// A compiled sliding window counter quota.
///
/// ```
/// use tollgate_core::{CounterState, Nanos, Outcome, SlidingCounter, Timestamp};
///
/// // 70 % into the window, 80 before and 30 now: 80 · 0.30 + 30 = 54 of 100.
/// let quota = SlidingCounter::builder(100, Nanos::MINUTE).build()?;
/// let state = CounterState { start: 60_000_000_000, previous: 80, current: 30 };
/// let now = Timestamp::from_secs(102);
/// assert_eq!(quota.status(state, now).remaining, 46);
/// assert_eq!(quota.decide(state, now, 46).outcome, Outcome::Allow);
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlidingCounter {
    pub(super) limit: u32,
    /// The estimate above which charges no longer count: the limit and the overdraft.
    pub(super) saturation: u32,
    /// The largest count that state may hold, over every quota that shares it.
    pub(super) ceiling: u32,
    /// The window in ticks.
    pub(super) window: NonZeroU64,
    /// One tick in nanoseconds: a power of ten.
    pub(super) tick: NonZeroU64,
}

impl SlidingCounter {
    /// Starts a quota of `limit` units in any window of this length, as estimated.
    pub const fn builder(limit: u64, window: Nanos) -> SlidingCounterBuilder {
        SlidingCounterBuilder {
            limit,
            window,
            overdraft: 0,
            ceiling: 0,
        }
    }

    /// Units admitted in any window, as estimated.
    #[must_use]
    pub fn limit(&self) -> u64 {
        u64::from(self.limit)
    }

    /// The estimate above which charges no longer count: the limit and the overdraft.
    #[must_use]
    pub const fn saturation(&self) -> u32 {
        self.saturation
    }

    /// The window in force: the requested one, rounded up to whole ticks.
    #[must_use]
    pub const fn window(&self) -> Nanos {
        Nanos::from_nanos(self.length())
    }

    /// The resolution of the clock: elapsed time is counted in whole ticks, rounded down.
    #[must_use]
    pub const fn tick(&self) -> Nanos {
        Nanos::from_nanos(self.tick.get())
    }

    /// The largest count that a state may hold. Larger counts are lowered to it.
    #[must_use]
    pub const fn ceiling(&self) -> u32 {
        self.ceiling
    }

    /// The window in nanoseconds.
    pub(super) const fn length(&self) -> u64 {
        self.window.get().saturating_mul(self.tick.get())
    }
}

/// The fields of a sliding window counter before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct SlidingCounterBuilder {
    limit: u64,
    window: Nanos,
    overdraft: u64,
    ceiling: u64,
}

impl SlidingCounterBuilder {
    /// How far `charge: always` may count beyond the limit, in units.
    pub const fn overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Accepts counts in the state up to this many units, even beyond the limit and the overdraft. Pass the largest over all quotas that
    /// decide on the same state. They then share a resolution too, because it follows from the ceiling.
    pub const fn ceiling(mut self, units: u64) -> Self {
        self.ceiling = units;
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// A window of no length or longer than 146 years, or counts beyond 32 bits.
    pub fn build(self) -> Result<SlidingCounter, InvalidQuota> {
        let invalid = |field, value, reason, nearest| InvalidQuota {
            field,
            value,
            reason,
            nearest,
        };
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
        let most = u64::from(u32::MAX);
        let narrow = |field, value: u64, room: u64| {
            let fits = u32::try_from(value).ok().filter(|_| value <= room);
            fits.ok_or_else(|| invalid(field, value, InvalidReason::TooLarge, Some(room)))
        };
        let limit = narrow("limit", self.limit, most)?;
        let room = most.saturating_sub(self.limit);
        let overdraft = narrow("overdraft", self.overdraft, room)?;
        let saturation = limit.saturating_add(overdraft);
        let ceiling = narrow("ceiling", self.ceiling, most)?.max(saturation);
        let (window, tick) = ticks(self.window, ceiling);
        Ok(SlidingCounter {
            limit,
            saturation,
            ceiling,
            window,
            tick,
        })
    }
}

/// The window in ticks, and the tick: the smallest power of ten of nanoseconds with which no product exceeds [`MAX_PRODUCT`]. Counts have
/// 32 bits, so at least a million ticks remain, and rounding the window up adds at most a millionth.
fn ticks(window: Nanos, ceiling: u32) -> (NonZeroU64, NonZeroU64) {
    let most_ticks = MAX_PRODUCT / NonZeroU64::from(non_zero(ceiling));
    let mut tick = 1_u64;
    while window.as_nanos().div_ceil(tick.max(1)) > most_ticks {
        tick = tick.saturating_mul(10);
    }
    let ticks = window.as_nanos().div_ceil(tick.max(1));
    (
        NonZeroU64::new(ticks).unwrap_or(NonZeroU64::MIN),
        NonZeroU64::new(tick).unwrap_or(NonZeroU64::MIN),
    )
}

fn non_zero(n: u32) -> core::num::NonZeroU32 {
    core::num::NonZeroU32::new(n).unwrap_or(core::num::NonZeroU32::MIN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_clock_is_as_fine_as_the_product_allows() {
        let tick = |limit, window| {
            SlidingCounter::builder(limit, window)
                .build()
                .unwrap()
                .tick()
        };
        assert_eq!(tick(1_000, Nanos::MINUTE), Nanos::from_nanos(1));
        assert_eq!(tick(1_000_000, Nanos::MINUTE), Nanos::from_nanos(100));
        assert_eq!(tick(1_000_000, Nanos::DAY), Nanos::from_micros(100));
        assert_eq!(
            tick(u64::from(u32::MAX), Nanos::YEAR),
            Nanos::from_secs(100)
        );
        for limit in [1, 3, 1_000, 1 << 20, u64::from(u32::MAX)] {
            for window in [
                Nanos::from_nanos(1),
                Nanos::SECOND,
                Nanos::DAY,
                MAX_CAPACITY,
            ] {
                let quota = SlidingCounter::builder(limit, window).build().unwrap();
                assert!(
                    quota.window.get() * limit <= MAX_PRODUCT,
                    "{limit} in {window:?}"
                );
                let grown = quota.window().as_nanos() - window.as_nanos();
                assert!(
                    grown <= window.as_nanos() / 100_000,
                    "{limit} in {window:?}"
                );
            }
        }
    }

    #[test]
    fn errors_name_the_field() {
        let field = |b: SlidingCounterBuilder| b.build().unwrap_err().field;
        assert_eq!(field(SlidingCounter::builder(1, Nanos::ZERO)), "window");
        assert_eq!(field(SlidingCounter::builder(1, Nanos::MAX)), "window");
        assert_eq!(field(SlidingCounter::builder(1 << 32, Nanos::DAY)), "limit");
        let error = SlidingCounter::builder(10, Nanos::DAY)
            .overdraft(u64::MAX)
            .build()
            .unwrap_err();
        assert_eq!(
            (error.field, error.nearest),
            ("overdraft", Some(u64::from(u32::MAX) - 10))
        );
    }
}
