//! The HTTP check endpoint: ask it whether a request may proceed, and it answers in the words of the RateLimit draft. Beside
//! it [`resp`], the same for Redis clients.
//!
//! [`App`] decides and words the answer, [`run`] listens. The listener, the clock and the end of the run are arguments,
//! so tests own all three. Must not know: command lines, signals, how the state is kept.
#![forbid(unsafe_code)]

mod app;
mod counters;
mod input;
mod json;
mod query;
mod reply;
pub mod resp;
mod run;
mod welcome;

pub use app::{App, InvalidApp};
pub use counters::Counters;
pub use input::{BadInput, Input};
pub use json::parse_json;
pub use query::parse_query;
pub use run::{Ended, Limits, run, run_with};
