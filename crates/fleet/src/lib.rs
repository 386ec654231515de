//! One quota for many nodes, and a limiter that survives the failure of their shared store.
//!
//! A decision has two tiers: the shared store, and this node's local store. While the store answers, it decides, and
//! the local tier records what it admits. A partition that does not answer is not asked for a while ([`Breaker`]). Then
//! the same procedure decides by fallback quotas on this node (`fallback_quota.rs`), or by each limit's
//! `on_store_failure`. When the partition recovers, the charges meanwhile are replayed to it (`replay.rs`).
//!
//! [`FleetEngine`] is the asynchronous driver of the engine's decisions. [`Fleet`] holds the store, breakers, cached
//! denials, leases and counts. A call that may have been carried out is never repeated. Requests are never used as
//! probes: [`Fleet::probe_unavailable`] does that. Must not know: which store it is, transports, when maintenance runs.
#![warn(clippy::print_stdout, clippy::print_stderr)]

mod abandoned_tickets;
mod async_checks;
mod breaker;
mod counters;
mod decision_source;
pub mod denial_cache;
mod engine;
mod fallback;
mod fallback_quota;
mod fleet;
mod join_all;
mod leased_checks;
pub mod leases;
mod local_tier;
pub mod reconcile;
mod replay;
mod sharded_table;
mod sharing_policy;
mod singleflight;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod tiered_decider;

pub use self::breaker::{Breaker, BreakerState};
pub use self::counters::FleetTotals;
pub use self::engine::FleetEngine;
pub use self::fleet::{Fleet, ProbeOutcome};
pub use self::sharing_policy::{ExactSharing, SharingPolicy};
pub use self::tiered_decider::TieredDecider;
