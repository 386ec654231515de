//! Builds a fixed window: the limit, and where windows begin and end.

use super::calendar::{Calendar, UtcOffset};
use crate::error::{InvalidQuota, InvalidReason};
use crate::time::{MAX_CAPACITY, Nanos, Timestamp};

/// Where windows begin and end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Window {
    /// On multiples of this length since 1970, the same for every key.
    Epoch(Nanos),
    /// This long from the first request that finds no open window.
    FirstHit(Nanos),
    /// With the calendar, at a fixed offset from UTC.
    Calendar(Calendar, UtcOffset),
}

impl Window {
    /// The end of the window that a request at `now` falls into or opens.
    pub(super) fn end(self, now: Timestamp) -> u64 {
        let now_ns = now.as_nanos();
        match self {
            Self::Epoch(length) => {
                let begun = now_ns.checked_rem(length.as_nanos()).unwrap_or(0);
                now_ns
                    .saturating_sub(begun)
                    .saturating_add(length.as_nanos())
            }
            Self::FirstHit(length) => now_ns.saturating_add(length.as_nanos()),
            Self::Calendar(calendar, offset) => calendar.end(now, offset),
        }
    }

    /// The latest end that a window can still have at `now`, given the end of a window opened now.
    ///
    /// A clock that steps back over a boundary leaves the end of the next window in the state. That end is kept: clients have seen it,
    /// and a nearer end would admit a whole limit again when the clock passes the boundary a second time.
    pub(super) fn latest_end(self, fresh_end: u64) -> u64 {
        match self {
            Self::Epoch(length) => fresh_end.saturating_add(length.as_nanos()),
            Self::FirstHit(_) => fresh_end,
            Self::Calendar(calendar, offset) => {
                calendar.end(Timestamp::from_nanos(fresh_end), offset)
            }
        }
    }

    const fn length(self) -> Option<Nanos> {
        match self {
            Self::Epoch(length) | Self::FirstHit(length) => Some(length),
            Self::Calendar(..) => None,
        }
    }
}

/// A compiled fixed window quota.
///
/// ```
/// use tollgate_core::{FixedWindow, Nanos, Outcome, Timestamp, WindowState, Window};
///
/// let quota = FixedWindow::builder(100, Window::Epoch(Nanos::MINUTE)).build()?;
/// let now = Timestamp::from_secs(59);
/// let full = WindowState { end: 60_000_000_000, count: 100 };
/// let transition = quota.decide(full, now, 1);
/// assert_eq!(transition.outcome, Outcome::Deny { retry_after: Nanos::SECOND });
/// # Ok::<(), tollgate_core::InvalidQuota>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FixedWindow {
    pub(super) limit: u64,
    /// The count above which charges no longer count: the limit and the overdraft.
    pub(super) saturation: u64,
    pub(super) window: Window,
}

impl FixedWindow {
    /// Starts a quota of `limit` units in each window.
    pub const fn builder(limit: u64, window: Window) -> FixedWindowBuilder {
        FixedWindowBuilder {
            limit,
            window,
            overdraft: 0,
        }
    }

    /// Units admitted in each window.
    #[must_use]
    pub const fn limit(&self) -> u64 {
        self.limit
    }

    /// The count above which charges no longer count: the limit and the overdraft.
    #[must_use]
    pub const fn saturation(&self) -> u64 {
        self.saturation
    }

    /// Where windows begin and end.
    #[must_use]
    pub const fn window(&self) -> Window {
        self.window
    }
}

/// The fields of a fixed window before they are checked.
#[derive(Clone, Copy, Debug)]
#[must_use = "a builder does nothing until `build` is called"]
pub struct FixedWindowBuilder {
    limit: u64,
    window: Window,
    overdraft: u64,
}

impl FixedWindowBuilder {
    /// How far `charge: always` may count beyond the limit, in units. The debt ends with its window.
    pub const fn overdraft(mut self, units: u64) -> Self {
        self.overdraft = units;
        self
    }

    /// Checks the fields and compiles the quota.
    ///
    /// # Errors
    /// A window of zero length or longer than 146 years, or an overdraft that cannot be counted.
    pub const fn build(self) -> Result<FixedWindow, InvalidQuota> {
        if let Some(length) = self.window.length() {
            if length.is_zero() {
                return Err(InvalidQuota {
                    field: "window",
                    value: 0,
                    reason: InvalidReason::Zero,
                    nearest: Some(1),
                });
            }
            if length.as_nanos() > MAX_CAPACITY.as_nanos() {
                return Err(InvalidQuota {
                    field: "window",
                    value: length.as_nanos(),
                    reason: InvalidReason::TooLarge,
                    nearest: Some(MAX_CAPACITY.as_nanos()),
                });
            }
        }
        match self.limit.checked_add(self.overdraft) {
            Some(saturation) => Ok(FixedWindow {
                limit: self.limit,
                saturation,
                window: self.window,
            }),
            None => Err(InvalidQuota {
                field: "overdraft",
                value: self.overdraft,
                reason: InvalidReason::TooLarge,
                nearest: Some(u64::MAX.saturating_sub(self.limit)),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn invalid_windows_and_overdrafts_are_rejected() {
        let field = |b: FixedWindowBuilder| b.build().unwrap_err().field;
        assert_eq!(
            field(FixedWindow::builder(1, Window::Epoch(Nanos::ZERO))),
            "window"
        );
        assert_eq!(
            field(FixedWindow::builder(1, Window::FirstHit(Nanos::MAX))),
            "window"
        );
        assert_eq!(
            field(FixedWindow::builder(2, Window::Epoch(Nanos::DAY)).overdraft(u64::MAX)),
            "overdraft"
        );
    }
}
