//! What decides for keys without a state of their own: one sketch of bucket states for each limit that needs one.
//!
//! A sketch may deny too much, never too little. Because every limit has its own, the debts of one limit never deny a key
//! of another. Sketches are allocated when a limit first needs one, and at most [`MAX_SKETCHES`] at a time; one whose debts
//! are over goes to the next limit that asks. While all are in use, further limits share the last. Limits that are not
//! buckets decide by [`Limit::stricter_bucket`](tollgate_core::limit::Limit::stricter_bucket). Must not know: tables, shelves.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::sketch::Sketch;
use tollgate_core::token_bucket::Tat;
use tollgate_core::{Rate, Timestamp, TokenBucket};

use super::limit_usage::LimitUsages;
use super::sync::{Ordering, fence};

/// Rows and cells of a sketch: half a mebibyte. A model makes thousands of stores and needs few.
const ROWS: usize = 4;
const WIDTH: usize = if cfg!(loom) { 16 } else { 1 << 14 };
/// The most sketches of a store: 16 MiB.
pub(super) const MAX_SKETCHES: usize = 32;

/// The sketches of one store.
#[derive(Debug, Default)]
pub(super) struct OverflowSketches {
    sketches: Mutex<SketchSet>,
}

/// Index and value of cells.
pub(super) type SketchCells = Vec<(usize, Tat)>;

/// All sketches, under one lock.
#[derive(Debug, Default)]
pub(super) struct SketchSet {
    sketches: Vec<LimitSketch>,
}

#[derive(Debug)]
struct LimitSketch {
    /// Whose it is. The last of [`MAX_SKETCHES`] may have several.
    limits: Vec<u16>,
    sketch: Sketch,
    /// Until when something is owed here.
    debt_until: Tat,
}

impl OverflowSketches {
    pub(super) fn lock(&self) -> MutexGuard<'_, SketchSet> {
        // A cell is raised in one assignment, so a panic elsewhere leaves nothing half done.
        self.sketches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What this key owes in its limit's sketch, if it does. With a fresh state it could spend everything once more.
    pub(super) fn debt(&self, usages: &LimitUsages, tag: u64, now: Timestamp) -> Option<Tat> {
        // Pairs with the store of a slot's tag: who no longer finds a key there also sees that its debt is here.
        fence(Ordering::Acquire);
        let limit = super::hash::limit_of(tag);
        if !usages.may_have_debts(limit, now) {
            return None;
        }
        let owed = self.lock().tat(tag);
        (owed > now.as_nanos()).then_some(owed)
    }

    /// Every limit with the cells of its sketch that still owe something, by number.
    pub(super) fn indebted_cells(&self, now: Timestamp) -> Vec<(Vec<u16>, SketchCells)> {
        let set = self.lock();
        let live = set
            .sketches
            .iter()
            .filter(|own| own.debt_until > now.as_nanos());
        let cells = |own: &LimitSketch| {
            let cells = own.sketch.cells().iter().copied().enumerate();
            cells.filter(|(_, tat)| *tat > now.as_nanos()).collect()
        };
        live.map(|own| (own.limits.clone(), cells(own))).collect()
    }

    /// How many cells a sketch has.
    pub(super) const fn cells(&self) -> usize {
        ROWS * WIDTH
    }

    /// Bytes that all sketches take.
    pub(super) fn size(&self) -> usize {
        let set = self.lock();
        set.sketches.iter().map(|own| own.sketch.size()).sum()
    }
}

impl SketchSet {
    /// Until when the key with this tag owes something, at most.
    pub(super) fn tat(&self, tag: u64) -> Tat {
        let limit = super::hash::limit_of(tag);
        let own = self.sketches.iter().find(|own| own.limits.contains(&limit));
        own.map_or(0, |own| own.sketch.tat(tag))
    }

    /// Notes that a key owes until `tat`. Never lowers what is owed: other keys share the cells.
    pub(super) fn add_debt(&mut self, usages: &LimitUsages, tag: u64, tat: Tat, now: Timestamp) {
        if tat <= now.as_nanos() {
            return;
        }
        let limit = super::hash::limit_of(tag);
        let Some(own) = self.sketch_of(limit, now) else {
            return;
        };
        if tat > own.sketch.tat(tag) {
            own.sketch.set_tat(tag, tat);
            own.debt_until = own.debt_until.max(tat);
        }
        usages.note_debt(limit, tat);
    }

    /// Gives a removed limit's sketch back.
    pub(super) fn remove_limit(&mut self, limit: u16) {
        for own in &mut self.sketches {
            own.limits.retain(|other| *other != limit);
        }
        self.sketches.retain(|own| !own.limits.is_empty());
    }

    /// Makes a sketch as it was for these limits. Answers false if it cannot have been one. If keys that did not fit have made a
    /// sketch for one of the limits, the debts are added there.
    pub(super) fn restore(
        &mut self,
        usages: &LimitUsages,
        limits: Vec<u16>,
        cells: &[(usize, Tat)],
        now: Timestamp,
    ) -> bool {
        let is_known = |limit: &u16| self.sketches.iter().any(|own| own.limits.contains(limit));
        if limits.iter().any(is_known) {
            return limits
                .iter()
                .all(|limit| self.raise(usages, *limit, cells, now));
        }
        if self.sketches.len() >= MAX_SKETCHES {
            return false;
        }
        let Some(mut own) = LimitSketch::new() else {
            return false;
        };
        for (index, tat) in cells {
            let tat = (*tat).min(Timestamp::MAX.as_nanos());
            if !own.sketch.raise_cell(*index, tat) {
                return false;
            }
            own.debt_until = own.debt_until.max(tat);
        }
        for limit in &limits {
            usages.note_debt(*limit, own.debt_until);
        }
        own.limits = limits;
        self.sketches.push(own);
        true
    }

    /// Adds the debts of a saved sketch to the limit's own.
    fn raise(
        &mut self,
        usages: &LimitUsages,
        limit: u16,
        cells: &[(usize, Tat)],
        now: Timestamp,
    ) -> bool {
        let Some(own) = self.sketch_of(limit, now) else {
            return false;
        };
        for (index, tat) in cells {
            let tat = (*tat).min(Timestamp::MAX.as_nanos());
            if !own.sketch.raise_cell(*index, tat) {
                return false;
            }
            own.debt_until = own.debt_until.max(tat);
        }
        usages.note_debt(limit, own.debt_until);
        true
    }

    /// The limit's sketch: its own, a new one, one whose debts are over, or else the last, which several then share.
    fn sketch_of(&mut self, limit: u16, now: Timestamp) -> Option<&mut LimitSketch> {
        let known = |own: &LimitSketch| own.limits.contains(&limit);
        let index = match self.sketches.iter().position(known) {
            Some(index) => index,
            None => {
                let is_over = |own: &LimitSketch| own.debt_until <= now.as_nanos();
                let index = match self.sketches.iter().position(is_over) {
                    Some(index) => {
                        self.sketches.get_mut(index)?.limits.clear();
                        index
                    }
                    None if self.sketches.len() < MAX_SKETCHES => {
                        self.sketches.push(LimitSketch::new()?);
                        self.sketches.len().checked_sub(1)?
                    }
                    None => MAX_SKETCHES - 1,
                };
                self.sketches.get_mut(index)?.limits.push(limit);
                index
            }
        };
        self.sketches.get_mut(index)
    }
}

impl LimitSketch {
    /// A sketch that nobody has. `None` never: its size is fixed.
    fn new() -> Option<Self> {
        // The sketch's own quota is never asked: each limit decides by its own.
        let quota = TokenBucket::builder(Rate::per_second(0)).build().ok()?;
        Some(Self {
            limits: Vec::new(),
            sketch: Sketch::new(quota, ROWS, WIDTH).ok()?,
            debt_until: 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_secs(1);

    fn tag(limit: u16, key: u64) -> u64 {
        (u64::from(limit) << 48) | key
    }

    const fn at(seconds: u64) -> u64 {
        Timestamp::from_secs(seconds).as_nanos()
    }

    #[test]
    fn what_is_owed_is_never_lowered() {
        let (overflow, usages) = (OverflowSketches::default(), LimitUsages::new());
        let owed = |key, now| overflow.debt(&usages, tag(1, key), Timestamp::from_secs(now));
        assert_eq!(owed(7, 1), None);
        overflow.lock().add_debt(&usages, tag(1, 7), at(3_601), NOW);
        overflow.lock().add_debt(&usages, tag(1, 7), at(2), NOW);
        assert_eq!(owed(7, 1), Some(at(3_601)));
        assert_eq!((owed(8, 1), owed(7, 3_601)), (None, None));
    }

    /// All limits shared one sketch, so a limit of one a day denied the keys of a limit of a thousand a minute for a day.
    #[test]
    fn the_sketch_of_one_limit_never_affects_another() {
        let (overflow, usages) = (OverflowSketches::default(), LimitUsages::new());
        for key in 0..100_000 {
            overflow
                .lock()
                .add_debt(&usages, tag(1, key), at(86_401), NOW);
        }
        overflow.lock().add_debt(&usages, tag(2, 0), at(2), NOW);
        let owed = |limit, key| overflow.debt(&usages, tag(limit, key), NOW);
        let denied = |limit| {
            (200_000..201_000)
                .filter_map(|key| owed(limit, key))
                .count()
        };
        assert!(denied(1) > 900, "the control: {} of 1000", denied(1));
        assert_eq!(denied(2), 0);
        assert_eq!(owed(2, 0), Some(at(2)));
    }

    #[test]
    fn sketches_are_bounded_and_return_when_their_debts_are_over() {
        let (overflow, usages) = (OverflowSketches::default(), LimitUsages::new());
        let most = u16::try_from(MAX_SKETCHES).unwrap();
        for limit in 1..=most + 5 {
            overflow.lock().add_debt(&usages, tag(limit, 1), at(9), NOW);
        }
        assert_eq!(overflow.size(), MAX_SKETCHES * ROWS * WIDTH * 8);
        for limit in 1..=most + 5 {
            let owed = overflow.debt(&usages, tag(limit, 1), NOW);
            assert_eq!(owed, Some(at(9)), "limit {limit}");
        }
        let later = Timestamp::from_secs(9);
        overflow
            .lock()
            .add_debt(&usages, tag(most + 6, 1), at(10), later);
        assert_eq!(overflow.size(), MAX_SKETCHES * ROWS * WIDTH * 8);
        let owed = |limit| overflow.debt(&usages, tag(limit, 1), later);
        assert_eq!((owed(most + 6), owed(1)), (Some(at(10)), None));
        overflow.lock().remove_limit(most + 6);
        assert_eq!(overflow.lock().tat(tag(most + 6, 1)), 0);
    }
}
