//! Sliding window counter: two counters that estimate a sliding log.
//!
//! The previous window's count is weighted by how much of it still overlaps the last window length; the current count has full weight:
//! `prev · (W − e) / W + cur`. It needs constant memory and has no boundary to exploit. It assumes that the traffic of the previous
//! window was evenly spread; `docs/accuracy.md` measures the error on real traffic.
//!
//! All arithmetic is on integers: both sides of the comparison are multiplied by the window. The tick is coarse enough that the products
//! stay below 2^52, so that a Redis script computes them as exactly as this code.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod quota;

pub use quota::{SlidingCounter, SlidingCounterBuilder};

/// The state of a sliding window counter. The default is a window that ended long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct CounterState {
    /// When the current window began, in nanoseconds since 1970.
    pub start: u64,
    /// Units spent in the window before it.
    pub previous: u32,
    /// Units spent in the current window.
    pub current: u32,
}
