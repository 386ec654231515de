//! Sliding window log: exact, because it stores every charge until it leaves the window.
//!
//! It is the most accurate algorithm and needs the most memory: one entry for each distinct microsecond with a charge. So the size of a
//! log bounds the limit. Time is in whole microseconds, the resolution of a Redis server, and an entry leaves at exactly its instant plus
//! the window.
//!
//! A decision reads the log and returns an edit; the log changes only when the edit is applied. So several limits can be decided
//! together, and none is charged if one denies.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod log;
mod quota;

pub use log::{Log, LogEdit, LogEntry};
pub use quota::{MAX_LOG_ENTRIES, SlidingLog, SlidingLogBuilder};
