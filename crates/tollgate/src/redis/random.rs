//! Random ids of reservations and leases, unique over all processes that use the server.
//!
//! Must not know: what the ids are for.

use std::hash::{BuildHasher as _, RandomState};

/// A random id of 128 bits.
pub(super) fn random_id() -> u128 {
    // A new `RandomState` is seeded by the operating system, so the hash of a constant is random.
    let state = RandomState::new();
    let half = |n: u8| u128::from(state.hash_one(n));
    (half(0) << 64) | half(1)
}
