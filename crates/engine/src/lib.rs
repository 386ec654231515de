//! The hot path: compiled rules and a store turn a request's attributes into a verdict.
//!
//! [`Engine::check`] matches the limits, builds their keys, asks the store about all of them in one batch that charges
//! all or none, and returns a [`Verdict`]. The decision itself does no IO: it is a state machine ([`Decision`]) that a
//! driver runs, here a plain loop over an in-memory store. [`Engine::replace`] reloads the rules, [`Engine::control`]
//! is the operator interface, [`Engine::divergence`] compares candidates. A warm decision does not allocate.
//!
//! Must not know: transports, header fields, files, whether a driver waits for a store.
#![warn(clippy::print_stdout, clippy::print_stderr)]

pub mod candidate;
mod carried_over;
mod check_options;
pub mod control;
mod counters;
mod decision;
mod direct_plan;
mod effective_mode;
mod engine;
mod external_counters;
mod generation;
mod key_spec_index;
mod key_states;
mod lease_ids;
mod limit_ids;
mod meter_state;
mod override_snapshot;
mod plan;
mod queue_departure;
mod queueing;
mod quota_info;
mod read_ahead;
mod rollout;
mod settlement;
mod sharded_counters;
mod sharing;
mod steps;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod ticket;
mod verdict;
mod verdict_builder;

pub use candidate::{Agreement, ComparisonTotals, Divergence};
pub use check_options::{CheckMode, CheckOptions, CheckScope};
pub use control::Control;
pub use counters::{LimitCounters, LimitEvent, LimitTotals};
pub use decision::Decision;
pub use engine::Engine;
pub use external_counters::ExternalCounters;
pub use generation::Generation;
pub use key_states::KeyState;
pub use limit_ids::{LimitIdAllocator, LimitIdsExhausted, SavedLimitId};
pub use queue_departure::QueueDeparture;
pub use quota_info::QuotaInfo;
pub use settlement::{SettleAction, Settlement};
pub use sharded_counters::ShardedCounters;
pub use sharing::{DenialCaching, Sharing};
pub use steps::{StoreSteps, checks, run_local};
pub use store::StateStore;
pub use ticket::{Response, ResponseSummary, SavedTicket, Ticket, WaitTicket};
#[expect(deprecated, reason = "the old name works for one release")]
pub use verdict::Standing;
pub use verdict::{Degradation, DenialReason, EnforcementMode, LimitState, Verdict};

/// The former name of [`LimitIdAllocator`].
#[deprecated(since = "0.2.0", note = "renamed to `LimitIdAllocator`")]
pub type Numbering = LimitIdAllocator;

/// The former name of [`ShardedCounters`].
#[deprecated(since = "0.2.0", note = "renamed to `ShardedCounters`")]
pub type Lines<const N: usize> = ShardedCounters<N>;
