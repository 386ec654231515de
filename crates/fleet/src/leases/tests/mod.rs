//! Slices, with a lender that is core's book and time that tests move.

mod fake_broker;
mod fault_simulation;
mod stories;
