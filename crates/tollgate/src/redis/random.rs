//! Names that nobody else has: of reservations and leases, in every process that uses the server.
//!
//! Must not know: what is named.

use std::hash::{BuildHasher as _, RandomState};

/// 128 bits that will not come again.
pub(super) fn random_id() -> u128 {
    // A fresh hasher is keyed by the operating system's randomness; how its bits fall is all that is asked of it.
    let state = RandomState::new();
    let half = |n: u8| u128::from(state.hash_one(n));
    (half(0) << 64) | half(1)
}
