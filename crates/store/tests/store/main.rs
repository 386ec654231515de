//! The memory store through its public interface: the vectors, the same decisions as core, exactness under threads,
//! constant memory.
//!
//! One binary with modules, so that the store is linked once.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that cannot go on should say so loudly, helpers included"
)]

mod allocation;
mod differential;
mod flood;
mod quotas;
mod regressions;
mod restart;
mod snapshot;
mod support;
mod threads;
mod vectors;
