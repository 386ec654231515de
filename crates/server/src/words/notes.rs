//! What was seen of each limit while a request was decided, as far as clients may know it: the quota, and a digest of who
//! was counted, made while the key is at hand.
//!
//! Must not know: what keys are made of, dialects.

use std::cell::Cell;

use tollgate_core::Nanos;
use tollgate_engine::{Seen, Witness};
use tollgate_http::PartitionKey;

use super::MOST_STATES;

/// A witness of one decision.
#[derive(Debug)]
pub(crate) struct Notes {
    /// Keys the digests. `None`: nobody wants to know who was counted.
    secret: Option<[u8; 16]>,
    of: [Cell<Note>; MOST_STATES],
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
            of: [const { Cell::new(Note::EMPTY) }; MOST_STATES],
        }
    }

    /// What is noted of the state at this position.
    pub(crate) fn of(&self, position: usize) -> Note {
        self.of.get(position).map_or(Note::EMPTY, Cell::get)
    }
}

impl Witness for Notes {
    fn saw(&self, position: usize, seen: &Seen<'_>) {
        let Some(place) = self.of.get(position) else {
            return;
        };
        let secret = self.secret.as_ref().filter(|_| !seen.key.is_empty());
        place.set(Note {
            cost: seen.cost,
            window: seen.window,
            more_after: seen.more_after,
            partition: secret.map(|secret| PartitionKey::digest(secret, seen.key)),
        });
    }
}
