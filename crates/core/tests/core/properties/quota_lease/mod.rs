//! Leases of a token bucket (I-01, I-14): a simulation with network faults, an exhaustive model, and the invariants of every limiter.

mod invariants;
mod model;
mod network_faults;
mod simulation;
mod wrong_broker;
