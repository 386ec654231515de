//! A flat hash table of fixed size: finds a key's slot, or makes room for it.
//!
//! There is no sweeper and no resizing, and the number and length of keys do not change its size. A key is in its
//! primary group or, if that was full on insert, in its alternate group. A slot with an expired state is free. When
//! both groups are full of live states, the table evicts the state whose loss refunds the least, but never a denied
//! key. If all keys are denied, there is no room, and the caller uses the overflow sketch.
//!
//! Locks are taken in one order, so there is no deadlock: insert locks by address, then slots by address. A thread that
//! looks for room while it holds an insert lock only tries slots and never waits for one.
//!
//! Must not know: algorithms, what a state means beyond its expiry and its priority.

use std::io;

use tollgate_core::Timestamp;

use super::eviction_priority::{EvictionPriorities, EvictionPriority};
use super::group::{Slot, SlotGroup, SlotGuard, slots_per_group};
use super::hash::{StateHash, limit_of};
use super::lock_bit::BitGuard;
use super::pages::Pages;

/// The number of keys that a group is sized for. At this average load, fewer than one in ten thousand keys finds both
/// of its groups full.
const fn keys_per_group(words: usize) -> usize {
    (slots_per_group(words) * 4).div_ceil(7)
}

/// Slots for states of W words.
pub(super) struct SlotTable<const W: usize> {
    pages: Pages,
}

/// A locked slot for a new key. The caller holds the key's insert lock until it has inserted, so that no key is
/// inserted twice.
#[derive(Debug)]
pub(super) struct VacantSlot<'a, const W: usize> {
    slot: SlotGuard<'a, W>,
    /// Whether inserting evicts a live state.
    evicts: bool,
}

impl<const W: usize> SlotTable<W> {
    /// A table with room for about `keys` concurrently used keys.
    pub(super) fn for_keys(keys: usize) -> io::Result<Self> {
        let groups = keys.div_ceil(keys_per_group(W)).max(2);
        Ok(Self {
            pages: Pages::zeroed(groups)?,
        })
    }

    /// The table's size in bytes.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.pages.groups())
    }

    /// Locks the key's slot, if it has one.
    #[inline]
    pub(super) fn lock_slot(&self, hash: StateHash) -> Option<SlotGuard<'_, W>> {
        let primary = self.primary_group(hash)?;
        let slot = primary.slot(hash.preferred_slot(slots_per_group(W)))?;
        if slot.tag() == hash.tag() {
            let guard = slot.lock();
            if guard.tag() == hash.tag() {
                return Some(guard);
            }
        }
        self.lock_other_slot(primary, hash)
    }

    /// Separate from the check of the preferred slot, which is enough for most calls.
    #[inline(never)]
    fn lock_other_slot<'a>(
        &'a self,
        primary: &'a SlotGroup,
        hash: StateHash,
    ) -> Option<SlotGuard<'a, W>> {
        let tag = hash.tag();
        if let Some(slot) = primary.slots().find(|slot| slot.tag() == tag) {
            let guard = slot.lock();
            if guard.tag() == tag {
                return Some(guard);
            }
        }
        loop {
            let guard = self.find(hash)?.lock();
            if guard.tag() == hash.tag() {
                return Some(guard);
            }
            // The key was evicted between the lookup and the lock.
        }
    }

    /// The key's slot, if it has one. The key may be evicted before the slot is locked.
    #[inline]
    pub(super) fn find(&self, hash: StateHash) -> Option<Slot<'_, W>> {
        let groups = self.pages.groups();
        let preferred = hash.preferred_slot(slots_per_group(W));
        let primary = groups.get(hash.primary_group(groups.len()))?;
        primary.find(hash.tag(), preferred).or_else(|| {
            if !primary.has_spilled() {
                return None;
            }
            groups
                .get(hash.alternate_group(groups.len()))?
                .find(hash.tag(), preferred)
        })
    }

    /// Locks inserts into the key's primary group.
    pub(super) fn insert_lock(&self, hash: StateHash) -> Option<BitGuard<'_>> {
        self.primary_group(hash).map(SlotGroup::insert_lock)
    }

    /// The address of the insert lock: the lock order, and whether two keys share a lock.
    pub(super) fn insert_lock_address(&self, hash: StateHash) -> usize {
        self.primary_group(hash)
            .map_or(0, |primary| std::ptr::from_ref(primary).addr())
    }

    /// Locks a slot into which a key without a slot can be inserted; `None` if every key in both groups is denied. The
    /// caller holds the key's insert lock.
    pub(super) fn make_room(
        &self,
        hash: StateHash,
        insert_lock: &mut BitGuard<'_>,
        now: Timestamp,
        priorities: &EvictionPriorities,
    ) -> Option<VacantSlot<'_, W>> {
        let groups = self.pages.groups();
        let primary = self.primary_group(hash)?;
        let alternate = groups.get(hash.alternate_group(groups.len()))?;
        let preferred = hash.preferred_slot(slots_per_group(W));
        if let Some(slot) = lock_free_slot(primary, preferred, now, priorities) {
            return Some(VacantSlot {
                slot,
                evicts: false,
            });
        }
        let (slot, evicts, is_primary) = match lock_free_slot(alternate, preferred, now, priorities)
        {
            Some(slot) => (slot, false, false),
            None => {
                let (slot, is_primary) = lock_eviction_victim(primary, alternate, now, priorities)?;
                // It may have expired, or been cleared, since the search for a free slot.
                let evicts = !is_free(&slot, now, priorities);
                (slot, evicts, is_primary)
            }
        };
        if !is_primary {
            SlotGroup::mark_spilled(insert_lock);
        }
        Some(VacantSlot { slot, evicts })
    }

    #[inline]
    fn primary_group(&self, hash: StateHash) -> Option<&SlotGroup> {
        let groups = self.pages.groups();
        groups.get(hash.primary_group(groups.len()))
    }

    pub(super) fn groups(&self) -> usize {
        self.pages.groups().len()
    }

    pub(super) fn slots(&self) -> usize {
        self.groups().saturating_mul(slots_per_group(W))
    }

    /// The slot with this index, counted through all groups.
    pub(super) fn slot(&self, number: usize) -> Option<Slot<'_, W>> {
        let group = self.pages.groups().get(number / slots_per_group(W))?;
        group.slot(number % slots_per_group(W))
    }

    /// Whether keys of this primary group may be in their alternate group, after all running inserts have finished.
    pub(super) fn has_spilled(&self, group: usize) -> bool {
        self.pages.groups().get(group).is_some_and(|group| {
            drop(group.insert_lock());
            group.has_spilled()
        })
    }

    /// Marks that keys of this primary group may be in their alternate group.
    pub(super) fn mark_spilled(&self, group: usize) {
        if let Some(group) = self.pages.groups().get(group) {
            SlotGroup::mark_spilled(&mut group.insert_lock());
        }
    }

    /// All slots with a key, which may change after the read.
    pub(super) fn occupied_slots(&self) -> impl Iterator<Item = Slot<'_, W>> {
        self.pages
            .groups()
            .iter()
            .flat_map(SlotGroup::slots)
            .filter(|slot| slot.tag() != 0)
    }
}

impl SlotTable<1> {
    /// The preferred slot and its state, if the key is there and the slot is unlocked. Locks nothing.
    #[inline]
    pub(super) fn peek(&self, hash: StateHash) -> Option<(Slot<'_, 1>, u64)> {
        let slot = self
            .primary_group(hash)?
            .slot(hash.preferred_slot(slots_per_group(1)))?;
        slot.peek(hash.tag()).map(|state| (slot, state))
    }
}

impl<const W: usize> VacantSlot<'_, W> {
    /// The key's state: zero before it is inserted.
    pub(super) fn state(&self, hash: StateHash) -> [u64; W] {
        if self.slot.tag() == hash.tag() {
            self.slot.state()
        } else {
            [0; W]
        }
    }

    /// Inserts the key. Returns whether a live state was evicted.
    pub(super) fn insert(&mut self, hash: StateHash, state: [u64; W]) -> bool {
        self.slot.insert(hash.tag(), state);
        self.evicts
    }
}

/// Locks a free slot of the group, the preferred one first.
fn lock_free_slot<'a, const W: usize>(
    group: &'a SlotGroup,
    preferred: usize,
    now: Timestamp,
    priorities: &EvictionPriorities,
) -> Option<SlotGuard<'a, W>> {
    let looks_free = |slot: &Slot<'_, W>| {
        let tag = slot.tag();
        tag == 0
            || priorities.priority_of(limit_of(tag), slot.peek_state(), now)
                == EvictionPriority::Free
    };
    let first = group.slot::<W>(preferred).into_iter();
    first.chain(group.slots()).find_map(|slot| {
        if slot.is_locked() || !looks_free(&slot) {
            return None;
        }
        slot.try_lock()
            .filter(|guard| is_free(guard, now, priorities))
    })
}

/// Whether the slot is empty, or its state has expired.
fn is_free<const W: usize>(
    slot: &SlotGuard<'_, W>,
    now: Timestamp,
    priorities: &EvictionPriorities,
) -> bool {
    let tag = slot.tag();
    tag == 0 || priorities.priority_of(limit_of(tag), slot.state(), now) == EvictionPriority::Free
}

/// Locks the slot with the lowest priority, and tells whether it is in the primary group. Denied keys are never
/// evicted.
fn lock_eviction_victim<'a, const W: usize>(
    primary: &'a SlotGroup,
    alternate: &'a SlotGroup,
    now: Timestamp,
    priorities: &EvictionPriorities,
) -> Option<(SlotGuard<'a, W>, bool)> {
    let priority = |tag, state| priorities.priority_of(limit_of(tag), state, now);
    // A candidate may be used between the read and the lock; then try the next.
    for _ in 0..4 {
        let in_primary = primary.slots().map(|slot| (slot, true));
        let (_, slot, is_primary) = in_primary
            .chain(alternate.slots().map(|slot| (slot, false)))
            .filter(|(slot, _)| !slot.is_locked())
            .map(|(slot, is_primary)| (priority(slot.tag(), slot.peek_state()), slot, is_primary))
            .filter(|(priority, ..)| *priority < EvictionPriority::Denied)
            .min_by_key(|(priority, ..)| *priority)?;
        if let Some(guard) = slot.try_lock()
            && priority(guard.tag(), guard.state()) < EvictionPriority::Denied
        {
            return Some((guard, is_primary));
        }
    }
    None
}
