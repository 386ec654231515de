//! Leases with core's accounting as the broker, and a manual clock.

mod fake_broker;
mod fault_simulation;
mod stories;
