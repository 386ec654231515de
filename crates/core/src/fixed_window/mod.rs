//! Fixed window: so many units until the window ends, then anew.
//!
//! Windows begin on multiples of their length since 1970, with the first request, or with the calendar's days, weeks
//! and months at a fixed offset from UTC. The state is the instant at which the window ends and what has been spent
//! in it. The end is stored, not recomputed, so that the reset instant a client was told stays true even if the
//! quota is changed meanwhile.
//!
//! Cheap and easy to explain; admits up to twice the limit across a boundary, which a test shows.
//!
//! Must not know: clocks, keys, stores, time zones with daylight saving (an offset is fixed).

mod algorithm;
mod calendar;
mod decide;
mod quota;

pub use calendar::{Calendar, UtcOffset};
pub use quota::{FixedWindow, FixedWindowBuilder, Window};

/// The state of a fixed window. The default is a window that ended long ago: nothing spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct WindowState {
    /// When the window ends, in nanoseconds since 1970; fixed when the window is created.
    pub end: u64,
    /// What has been spent in it, in units.
    pub count: u64,
}
