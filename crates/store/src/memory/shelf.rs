//! States that do not fit in words: logs, leases, and the reservations of any limit. Boxes on shelves, one lock a shelf,
//! with a bound on boxes and on bytes.
//!
//! A box that has expired is as good as none. When a shelf is full, the box whose loss forgives the least goes, but never
//! one that holds a lease or a reservation, nor one whose key is being denied. Must not know: words, slots, batches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::reservation::{Reservations, Terms};
use tollgate_core::{Nanos, Timestamp};

use super::hash::Place;

/// Boxes on one shelf.
const BOXES: usize = 8;
/// Shelves in one case: eight kibibytes, put up in a microsecond or two.
const SHELVES: usize = 256;
/// What one entry of a collection takes at most, with what growing by doubling wastes.
const ENTRY_BYTES: usize = 160;
/// How long a reservation is remembered after it has expired.
const RESERVATION_MEMORY: Nanos = Nanos::MINUTE;
/// The most reservations under one key of one limit.
const MOST_RESERVATIONS: usize = 1_024;

/// All shelves, in cases that are put up when somebody first needs one: whoever keeps only words pays for none, and
/// nobody waits for all of them.
#[derive(Debug)]
pub(super) struct Shelves {
    cases: Box<[OnceLock<Case>]>,
    count: usize,
    /// Bytes that all boxes together may take, and that they do.
    budget: usize,
    used: AtomicUsize,
}

type Case = Box<[Mutex<Shelf>]>;

/// A few boxes under one lock.
#[derive(Debug, Default)]
pub(super) struct Shelf {
    boxes: Vec<Stored>,
}

/// One key's collections under one limit.
#[derive(Debug)]
pub(super) struct Stored {
    place: Place,
    limit: Limit,
    pub(super) state: State,
    pub(super) ledger: Reservations,
    /// The bytes it was last counted as.
    bytes: usize,
}

/// The terms of a reservation with this hold.
pub(super) const fn terms(hold: Nanos) -> Terms {
    Terms {
        hold,
        memory: RESERVATION_MEMORY,
        most: MOST_RESERVATIONS,
    }
}

impl Shelves {
    /// Shelves for about so many keys, whose collections may take so many bytes.
    pub(super) fn new(keys: usize, budget: usize) -> Self {
        let count = keys.div_ceil(BOXES / 2).max(1);
        let mut cases = Vec::new();
        cases.resize_with(count.div_ceil(SHELVES), OnceLock::new);
        Self {
            cases: cases.into_boxed_slice(),
            count,
            budget,
            used: AtomicUsize::new(0),
        }
    }

    /// Which shelf a key's box is on: the order in which several are locked.
    pub(super) fn index(&self, place: Place) -> usize {
        place.home(self.count)
    }

    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, Shelf>> {
        // A panic under the lock left whole boxes behind: each change to one is a single call.
        let case = self.cases.get(index / SHELVES)?.get_or_init(|| {
            let mut case = Vec::new();
            case.resize_with(SHELVES, Mutex::default);
            case.into_boxed_slice()
        });
        let shelf = case.get(index % SHELVES)?;
        Some(shelf.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Makes sure that the key has a box. `None` if there is no room for one, or no bytes for it to grow.
    pub(super) fn provide<'a>(
        &self,
        shelf: &'a mut Shelf,
        place: Place,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<&'a mut Stored> {
        if !self.has_bytes() {
            self.clear_expired(shelf, now);
        }
        let index = match shelf.position(place) {
            Some(index) => index,
            None => self.place_new(shelf, place, limit, now)?,
        };
        if !self.has_bytes() {
            return None;
        }
        shelf.boxes.get_mut(index)
    }

    /// Counts a box again after it has changed.
    pub(super) fn recount(&self, stored: &mut Stored) {
        let bytes = stored.measure();
        self.used.fetch_add(bytes, Ordering::Relaxed);
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        stored.bytes = bytes;
    }

    /// Takes a key's box away. Answers whether there was one.
    pub(super) fn remove(&self, shelf: &mut Shelf, place: Place) -> bool {
        let Some(index) = shelf.position(place) else {
            return false;
        };
        let stored = shelf.boxes.swap_remove(index);
        self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        true
    }

    /// Bytes that all boxes take.
    pub(super) fn used(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    fn has_bytes(&self) -> bool {
        self.used().saturating_add(ENTRY_BYTES) <= self.budget
    }

    fn clear_expired(&self, shelf: &mut Shelf, now: Timestamp) {
        shelf.boxes.retain(|stored| {
            let stays = !stored.is_expired(now);
            if !stays {
                self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
            }
            stays
        });
    }

    fn place_new(
        &self,
        shelf: &mut Shelf,
        place: Place,
        limit: &Limit,
        now: Timestamp,
    ) -> Option<usize> {
        if shelf.boxes.len() >= BOXES {
            self.clear_expired(shelf, now);
        }
        if shelf.boxes.len() >= BOXES {
            let victim = shelf.least_worth(now)?;
            let stored = shelf.boxes.swap_remove(victim);
            self.used.fetch_sub(stored.bytes, Ordering::Relaxed);
        }
        let mut stored = Stored {
            place,
            limit: *limit,
            state: State::default(),
            ledger: Reservations::default(),
            bytes: 0,
        };
        self.recount(&mut stored);
        shelf.boxes.push(stored);
        Some(shelf.boxes.len().saturating_sub(1))
    }
}

impl Shelf {
    /// The key's box, if it has one.
    pub(super) fn get(&mut self, place: Place) -> Option<&mut Stored> {
        let index = self.position(place)?;
        self.boxes.get_mut(index)
    }

    fn position(&self, place: Place) -> Option<usize> {
        self.boxes.iter().position(|stored| stored.place == place)
    }

    /// The box whose loss forgives the least, among those that may be lost.
    fn least_worth(&self, now: Timestamp) -> Option<usize> {
        let worth = |stored: &Stored| {
            let status = stored.limit.status(&stored.state, now);
            let used = status.limit.saturating_sub(status.remaining);
            let is_losable = status.remaining > 0
                && stored.ledger.is_empty()
                && !matches!(stored.limit.quota(), Quota::Concurrency(_));
            // Parts of 2^32: limits on shelves are far below that.
            is_losable.then(|| used.saturating_mul(1 << 32) / status.limit.max(1))
        };
        let candidates = self.boxes.iter().enumerate();
        let (_, index) = candidates
            .filter_map(|(i, stored)| Some((worth(stored)?, i)))
            .min()?;
        Some(index)
    }
}

impl Stored {
    fn is_expired(&self, now: Timestamp) -> bool {
        let is_forgotten = self.ledger.room_after(now, &terms(Nanos::ZERO)).is_zero();
        is_forgotten && self.limit.status(&self.state, now).reset_after.is_zero()
    }

    fn measure(&self) -> usize {
        let entries = match &self.state {
            State::Log(log) => log.len(),
            State::Leases(leases) => leases.len(),
            _ => 0,
        };
        let entries = entries.saturating_add(self.ledger.len());
        entries
            .saturating_mul(ENTRY_BYTES)
            .saturating_add(size_of::<Self>())
    }
}
