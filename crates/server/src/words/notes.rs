//! What was seen of each limit while a request was decided, as far as clients may know it: the quota, and a digest of who
//! was counted, made while the key is at hand.
//!
//! Must not know: what keys are made of, dialects.

use std::sync::{Mutex, PoisonError};

use tollgate_core::Nanos;
use tollgate_engine::{Seen, Witness};
use tollgate_http::PartitionKey;

use super::MOST_STATES;

/// A witness of one decision.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Keys the digests. `None`: nobody wants to know who was counted.
    secret: Option<[u8; 16]>,
    of: Mutex<[Note; MOST_STATES]>,
}

/// What is noted of one limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Note {
    /// What the request costs there.
    pub(crate) cost: u64,
    /// The window of the quota that decided.
    pub(crate) window: Nanos,
    /// Time until there is more.
    pub(crate) more_after: Nanos,
    /// Who was counted. `None` where everybody is counted together.
    pub(crate) partition: Option<PartitionKey>,
}

impl Note {
    const EMPTY: Self = Self {
        cost: 0,
        window: Nanos::ZERO,
        more_after: Nanos::ZERO,
        partition: None,
    };
}

impl Notes {
    pub(super) const fn keyed_by(secret: Option<[u8; 16]>) -> Self {
        Self {
            secret,
            of: Mutex::new([Note::EMPTY; MOST_STATES]),
        }
    }

    /// What is noted of the state at this position.
    pub(crate) fn of(&self, position: usize) -> Note {
        let of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        of.get(position).copied().unwrap_or(Note::EMPTY)
    }
}

impl Witness for Notes {
    fn saw(&self, position: usize, seen: &Seen<'_>) {
        let secret = self.secret.as_ref().filter(|_| !seen.key.is_empty());
        let note = Note {
            cost: seen.cost,
            window: seen.window,
            more_after: seen.more_after,
            partition: secret.map(|secret| PartitionKey::digest(secret, seen.key)),
        };
        let mut of = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = of.get_mut(position) {
            *place = note;
        }
    }
}
