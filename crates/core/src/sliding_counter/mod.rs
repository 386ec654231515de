//! Sliding window counter: two counters that estimate a log.
//!
//! The previous window's count is weighted by how much of it still overlaps the last window's length, the current
//! one counts in full: `prev · (W − e) / W + cur`. Constant memory and no boundary to exploit. It assumes that the
//! previous window's traffic was evenly spread; how wrong that is on real traffic is measured in
//! `docs/accuracy.md`.
//!
//! Pure integers: both sides of the comparison are multiplied by the window, and the clock is coarse enough that
//! their products stay below 2^52, which a Redis script can compute as exactly as this code.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod quota;

pub use quota::{SlidingCounter, SlidingCounterBuilder};

/// The state of a sliding window counter. The default is a window that passed long ago: nothing spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CounterState {
    /// When the current window began, in nanoseconds since 1970.
    pub start: u64,
    /// What was spent in the window before it, in units.
    pub previous: u32,
    /// What has been spent in the current window, in units.
    pub current: u32,
}
