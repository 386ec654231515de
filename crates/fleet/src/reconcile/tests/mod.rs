//! Nodes that reconcile over an in-memory store with faults.

mod bound;
mod fake_remote;
mod stories;
