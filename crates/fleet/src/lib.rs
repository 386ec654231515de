//! One quota for many nodes, and a limiter that outlives the store they share.
//!
//! Every decision has two tiers: the states that all nodes share, and this node's own. While the store answers, it decides,
//! and what it admits is noted here too. A part of the store that does not answer is not asked for a while ([`Breaker`]), and
//! nothing else changes: the same procedure decides by fallback quotas on this node (`fallback_quota.rs`), or as each limit's
//! `on_store_failure` says. What was admitted meanwhile is replayed to the store when it is back (`replay.rs`).
//!
//! [`FleetEngine`] is the asynchronous driver of the engine's decisions, [`Fleet`] what it needs: the store, breakers, cached
//! denials, leases, counts. Nothing here repeats a call that may have been carried out, and no request is ever used to find
//! out whether the store is back: [`Fleet::tend`] does that. Must not know: which store it is, transports, when it is tended.

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
pub use self::tiered_decider::{ExactSharing, SharingPolicy, TieredDecider};
