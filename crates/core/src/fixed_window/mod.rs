//! Fixed window: a number of units until the window ends; then the count starts again.
//!
//! Windows begin on multiples of their length since 1970, with the first request, or with the days, weeks and months of the calendar at a
//! fixed offset from UTC. The state is the instant at which the window ends and the units spent in it. The end is stored, not recomputed,
//! so that a reset instant that a client has seen stays true even if the quota changes meanwhile.
//!
//! It is cheap and easy to explain. It admits up to twice the limit across a boundary, which a test shows.
//!
//! Must not know: clocks, keys, stores, time zones with daylight saving (an offset is fixed).

mod algorithm;
mod calendar;
mod decide;
mod quota;

pub use calendar::{Calendar, UtcOffset};
pub use quota::{FixedWindow, FixedWindowBuilder, Window};

/// The state of a fixed window. The default is a window that ended long ago.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowState {
    /// When the window ends, in nanoseconds since 1970; fixed when the window is created.
    pub end: u64,
    /// Units spent in it.
    pub count: u64,
}
