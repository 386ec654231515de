//! Nodes that reconcile over an in-memory store with faults.

mod bound;
mod decisions;
mod fake_remote;
