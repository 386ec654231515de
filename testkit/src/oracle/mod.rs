//! Oracles: what a limiter should have answered, found by other means than the limiter's own.
//!
//! Explicit logs, brute force and rational arithmetic by cross-multiplication in 128 bits: slow, obvious, and sharing
//! no code with what they judge. They take plain numbers, so that a wrong variant can be judged as well as the product.
//!
//! Must not know: quotas, states and outcomes of `tollgate-core`.

mod bucket_log;
mod calendar;
mod fifo;
mod lease_holders;
mod naive_ledger;
mod two_counters;
mod unit_demand;
mod wide_integers;
mod window_count;

pub use bucket_log::BucketLog;
pub use calendar::{NaiveSpan, naive_end};
pub use fifo::Fifo;
pub use lease_holders::LeaseHolders;
pub use naive_ledger::{NaiveCorrection, NaiveLedger};
pub use two_counters::TwoCounters;
pub use unit_demand::{UnitDemand, share_unit_by_unit};
pub use wide_integers::compare_products;
pub use window_count::{ExactLog, FirstHitCount, most_in_any_window};
