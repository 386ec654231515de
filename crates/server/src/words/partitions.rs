//! Who was counted by each limit of one decision, as clients may know it: digests, made while the keys are at hand.
//!
//! Must not know: what keys are made of.

use std::cell::Cell;

use tollgate_engine::Witness;
use tollgate_http::PartitionKey;

use super::MOST_STATES;

/// The partitions of one verdict's limits.
#[derive(Debug)]
pub(crate) struct Partitions {
    /// Keys the digests. `None`: nobody wants to know.
    secret: Option<[u8; 16]>,
    of: [Cell<Option<PartitionKey>>; MOST_STATES],
}

impl Partitions {
    pub(super) const fn keyed_by(secret: Option<[u8; 16]>) -> Self {
        Self {
            secret,
            of: [const { Cell::new(None) }; MOST_STATES],
        }
    }

    /// Who was counted by the state at this position. `None` where everybody is counted together.
    pub(super) fn of(&self, position: usize) -> Option<PartitionKey> {
        self.of.get(position)?.get()
    }
}

impl Witness for Partitions {
    fn keyed(&self, position: usize, key: &[u8]) {
        if let Some(secret) = &self.secret
            && let Some(place) = self.of.get(position)
            && !key.is_empty()
        {
            place.set(Some(PartitionKey::digest(secret, key)));
        }
    }
}
