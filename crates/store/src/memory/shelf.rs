//! States that do not fit in words: logs, leases, and the reservations of any limit. Boxes on shelves, one lock a shelf,
//! with a bound on boxes and on bytes.
//!
//! A box that has expired is as good as none. When a shelf is full, the box whose loss forgives the least goes, but never
//! one that holds a lease or a reservation, nor one whose key is being denied. Must not know: words, slots, batches.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::limit::{Limit, Quota, State};
use tollgate_core::reservation::{Reservations, Terms};
use tollgate_core::{Nanos, Timestamp};

use super::hash::Place;

/// Boxes on one shelf.
const BOXES: usize = 8;
/// What one entry of a collection takes at most, with what growing by doubling wastes.
const ENTRY_BYTES: usize = 160;
/// How long a reservation is remembered after it has expired.
const RESERVATION_MEMORY: Nanos = Nanos::MINUTE;
/// The most reservations under one key of one limit.
const MOST_RESERVATIONS: usize = 1_024;

/// All shelves.
#[derive(Debug)]
pub(super) struct Shelves {
    shelves: Box<[Mutex<Shelf>]>,
    /// Bytes that all boxes together may take, and that they do.
    budget: usize,
    used: AtomicUsize,
    /// How long a reservation is remembered after it has expired, and how many there may be under one key.
    memory: Nanos,
    most: usize,
}

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

impl Shelves {
    /// Shelves for about so many keys, whose collections may take so many bytes.
    pub(super) fn new(keys: usize, budget: usize) -> Self {
        let mut shelves = Vec::new();
        shelves.resize_with(keys.div_ceil(BOXES / 2).max(1), Mutex::default);
        Self {
            shelves: shelves.into_boxed_slice(),
            budget,
            used: AtomicUsize::new(0),
            memory: RESERVATION_MEMORY,
            most: MOST_RESERVATIONS,
        }
    }

    /// Changes how reservations are remembered.
    pub(super) const fn remember(&mut self, memory: Nanos, most: usize) {
        (self.memory, self.most) = (memory, most);
    }

    /// The terms of a reservation with this hold.
    pub(super) const fn terms(&self, hold: Nanos) -> Terms {
        Terms {
            hold,
            memory: self.memory,
            most: self.most,
        }
    }

    /// Which shelf a key's box is on: the order in which several are locked.
    pub(super) fn index(&self, place: Place) -> usize {
        place.home(self.shelves.len())
    }

    pub(super) fn lock(&self, index: usize) -> Option<MutexGuard<'_, Shelf>> {
        // A panic under the lock left whole boxes behind: each change to one is a single call.
        let shelf = self.shelves.get(index)?;
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
            let stays = !stored.is_expired(now, &self.terms(Nanos::ZERO));
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
    fn is_expired(&self, now: Timestamp, terms: &Terms) -> bool {
        let is_forgotten = self.ledger.room_after(now, terms).is_zero();
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
