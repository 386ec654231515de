//! Sliding window log: exact, because it remembers every charge until it leaves the window.
//!
//! The most accurate algorithm and the one that costs memory: one entry for each distinct microsecond in which
//! something was charged, so the limit is bounded by what a log may hold. Time is read in whole microseconds (a
//! Redis server's resolution), and an entry leaves at exactly its instant plus the window.
//!
//! A decision reads the log and answers with an edit; the log changes only when the edit is applied. That is what
//! lets several limits be decided together and none be charged if one refuses.
//!
//! Must not know: clocks, keys, stores.

mod algorithm;
mod decide;
mod log;
mod quota;

pub use log::{Log, LogEdit, LogEntry};
pub use quota::{MAX_LOG_ENTRIES, SlidingLog, SlidingLogBuilder};
