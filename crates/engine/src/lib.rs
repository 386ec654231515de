//! The one hot path: what is known of a request becomes a verdict, by compiled rules and a store.
//!
//! [`Engine::decide`] finds the limits that a request falls under, makes their keys, asks the store about all of them in
//! one step that charges all or none, and says in a [`Verdict`] what came of it. [`Engine::replace`] puts other rules in
//! force while requests are decided. [`Engine::control`] is for operators, [`Engine::divergence`] compares candidates,
//! [`envoy`] decides by Envoy's files. Nothing here waits, and a warm decision allocates nothing.
//!
//! Must not know: transports, headers of answers, files.

mod aftermath;
mod asks;
pub mod control;
mod counters;
mod decide;
pub mod deny_cache;
mod desk;
mod engine;
pub mod envoy;
mod findings;
pub mod fleet;
mod generation;
mod kept;
mod lines;
mod lots;
mod numbers;
mod plan;
mod stance;
mod store;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod tests;
mod ticket;
mod together;
mod told;
pub mod trial;
mod verdict;
mod waiting;
mod witness;

pub use control::Control;
pub use counters::Counted;
pub use engine::Engine;
pub use generation::Generation;
pub use lines::Lines;
pub use numbers::{Numbering, OutOfNumbers};
pub use store::StateStore;
pub use ticket::{Response, Ticket};
pub use together::Together;
pub use trial::{Agreement, Comparisons, Divergence};
pub use verdict::{Degraded, LimitState, Reason, Standing, Verdict};
pub use witness::{Purpose, Seen, Terms, Witness};
