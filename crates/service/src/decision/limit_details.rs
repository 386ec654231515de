//! What header fields say of each limit and the verdict does not carry: the quota's window and a digest of the key.
//!
//! The engine reports it to a witness while the key is at hand. Must not know: what keys are made of, dialects.

use std::sync::{Mutex, PoisonError};

use tollgate_core::Nanos;
use tollgate_engine::{Seen, Witness};
use tollgate_http::PartitionKey;
use tollgate_store::contract::MAX_CHECKS;

use crate::secret::Secret;

/// The details of one decision, by the position of the limit in the verdict.
#[derive(Debug)]
pub(crate) struct LimitDetails {
    /// Keys the digests. `None`: no dialect sends partitions.
    secret: Option<Secret>,
    of: Mutex<[LimitDetail; MAX_CHECKS]>,
}

/// The details of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitDetail {
    /// What the request costs there.
    pub(crate) cost: u64,
    /// The window of the quota that decided.
    pub(crate) window: Nanos,
    /// Time until there is one more unit, where nothing is left of a bucket.
    pub(crate) time_to_next_unit: Nanos,
    /// The digest of the key. `None` where everybody is counted together.
    pub(crate) partition: Option<PartitionKey>,
}

impl LimitDetail {
    const EMPTY: Self = Self {
        cost: 0,
        window: Nanos::ZERO,
        time_to_next_unit: Nanos::ZERO,
        partition: None,
    };
}

impl LimitDetails {
    pub(crate) const fn new(secret: Option<Secret>) -> Self {
        Self {
            secret,
            of: Mutex::new([LimitDetail::EMPTY; MAX_CHECKS]),
        }
    }

    /// The details of the limit at this position.
    pub(crate) fn of(&self, position: usize) -> LimitDetail {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.get(position).copied().unwrap_or(LimitDetail::EMPTY)
    }
}

impl Witness for LimitDetails {
    fn saw(&self, position: usize, seen: &Seen<'_>) {
        let secret = self.secret.as_ref().filter(|_| !seen.key.is_empty());
        let detail = LimitDetail {
            cost: seen.cost,
            window: seen.window,
            time_to_next_unit: seen.more_after,
            partition: secret.map(|secret| PartitionKey::digest(&secret.0, seen.key)),
        };
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = of.get_mut(position) {
            *place = detail;
        }
    }
}
