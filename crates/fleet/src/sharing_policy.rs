//! How a fleet shares the states of a batch, for procedures outside the policy too.
//!
//! Must not know: stores, how batches are decided.

use tollgate_engine::Sharing;

/// How a fleet shares the states of a batch.
pub trait SharingPolicy: Sync {
    /// How the state of the check at this position is shared.
    fn sharing(&self, position: usize) -> Sharing<'_>;
}

/// All states are shared exactly: for checks outside the policy.
#[derive(Clone, Copy, Debug)]
pub struct ExactSharing;

impl SharingPolicy for ExactSharing {
    fn sharing(&self, _position: usize) -> Sharing<'_> {
        Sharing::EXACT
    }
}
