//! Overload in simulated time: our controllers beside ports of published ones and an oracle that knows the capacity.
//!
//! `simulation` is the server and its clients, `ours`, `oracle` and `published` decide what may start, `scenarios` are the
//! traces, `score` judges. Nothing here reads a clock, so every run gives the same numbers.
#![expect(
    clippy::indexing_slicing,
    reason = "a simulation with a wrong index must stop, because its score would be wrong"
)]

mod controller;
mod oracle;
mod ours;
mod published;
mod random;
mod scenarios;
mod score;
mod simulation;

#[cfg(test)]
mod tests;

pub use controller::{Controller, ControllerKind, Release, SimulatedRequest};
pub use random::Random;
pub use scenarios::{DEADLINE, Scenario, Stage, WORKERS, gcl, ramp, steps};
pub use score::{Score, StageScore, shed_shares};
pub use simulation::{Run, TimeBucket, run};
