//! The one hot path: what is known of a request becomes a verdict, by compiled rules and a store.
//!
//! Must not know: transports, files, headers of answers.

mod counters;
pub mod deny_cache;
mod numbers;
#[cfg(test)]
mod testing;

pub use counters::Counted;
pub use numbers::OutOfNumbers;
