//! A flat hash table of fixed size: finds a key's slot, or makes room for it.
//!
//! There is no sweeper and no resizing, and the number and length of keys do not change its size. A key is in its
//! primary group or, if that was full on insert, in its alternate group. A slot with an expired state is free. When
//! both groups are full of live states, the table evicts a state of the limit that is furthest above its share, even of a
//! denied key. If all limits are within their share, it evicts the state whose loss refunds the least, but no denied key,
//! unless that has the limit of the new key and the limit forgets. If no state may be evicted, there is no room, and the
//! caller uses the overflow sketch.
//!
//! Locks are taken in one order, so there is no deadlock: insert locks by address, then slots by address. A thread that
//! looks for room while it holds an insert lock only tries slots and never waits for one.
//!
//! Must not know: algorithms, what a state means beyond its expiry and its priority.

use std::cmp::Reverse;
use std::io;
use std::num::NonZeroU16;
use std::sync::atomic::{AtomicUsize, Ordering};

use tollgate_core::Timestamp;
use tollgate_core::limit::WhenFull;

use super::eviction_priority::{EvictionPriorities, EvictionPriority};
use super::group::{Slot, SlotGroup, SlotGuard, WORDS, slots_per_group};
use super::hash::{StateHash, limit_of};
use super::hash_tops::HashTops;
use super::limit_usage::{LimitUsages, Table};
use super::lock_bit::BitGuard;
use super::pages::Pages;
use super::prefetch::prefetch;
use crate::contract::LimitId;

/// The number of keys that a group is sized for. At this average load, fewer than one in ten thousand keys finds both
/// of its groups full.
const fn keys_per_group(words: usize) -> usize {
    (slots_per_group(words) * 4).div_ceil(7)
}

/// Slots for states of W words.
pub(super) struct SlotTable<const W: usize> {
    pages: Pages,
    hash_tops: HashTops,
    /// Slots that were ever used.
    used_slots: AtomicUsize,
}

/// A locked slot for a new key. The caller holds the key's insert lock until it has inserted, so that no key is
/// inserted twice.
#[derive(Debug)]
pub(super) struct VacantSlot<'a, const W: usize> {
    slot: SlotGuard<'a, W>,
    table: &'a SlotTable<W>,
    /// Whether inserting evicts a live state.
    evicts: bool,
    /// What the key owes already.
    initial: [u64; W],
}

/// In which order slots go when there is no free one; the least goes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum VictimRank {
    /// Free after all.
    Free,
    /// Its limit has so many slots, which is above its share. Those of the limit with the most go first.
    AboveShare(Reverse<u64>, EvictionPriority),
    /// Its limit is within its share.
    WithinShare(EvictionPriority),
    /// Its key is being denied, by the newcomer's own limit, which forgets.
    DeniedByForgetful,
}

/// How slots of a table are ranked for one newcomer.
struct VictimOrder<'a> {
    now: Timestamp,
    priorities: &'a EvictionPriorities,
    usages: &'a LimitUsages,
    table: Table,
    share: u64,
    newcomer: u16,
}

impl VictimOrder<'_> {
    /// When the slot goes; `None` if it must stay.
    fn rank<const W: usize>(&self, tag: u64, state: [u64; W]) -> Option<VictimRank> {
        let limit = limit_of(tag);
        let priority = self.priorities.priority_of(limit, state, self.now);
        if tag == 0 || priority == EvictionPriority::Free {
            return Some(VictimRank::Free);
        }
        let slots = self.usages.used(limit, self.table);
        if slots > self.share {
            return Some(VictimRank::AboveShare(Reverse(slots), priority));
        }
        if priority < EvictionPriority::Denied {
            return Some(VictimRank::WithinShare(priority));
        }
        let is_forgotten =
            limit == self.newcomer && self.usages.when_full(limit) == WhenFull::Forget;
        is_forgotten.then_some(VictimRank::DeniedByForgetful)
    }
}

impl<const W: usize> SlotTable<W> {
    /// A table with room for about `keys` concurrently used keys.
    pub(super) fn for_keys(keys: usize) -> io::Result<Self> {
        let groups = keys.div_ceil(keys_per_group(W)).max(2);
        let slots = groups.saturating_mul(slots_per_group(W));
        Ok(Self {
            pages: Pages::zeroed(groups)?,
            hash_tops: HashTops::for_slots(slots)?,
            used_slots: AtomicUsize::new(0),
        })
    }

    /// Counts the first use of a slot. Keys are spread over the whole table, so with huge pages a few keys would make all of it
    /// resident. Huge pages begin when a sixteenth of the slots is used: below that a key costs at most one small page.
    pub(super) fn count_first_use(&self) {
        let used = self.used_slots.fetch_add(1, Ordering::Relaxed);
        if used == self.slots() / 16 {
            self.pages.use_huge_pages();
        }
    }

    /// The table's size in bytes.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.pages.groups()).saturating_add(self.hash_tops.size())
    }

    /// Begins to load the group that the key is most likely in.
    #[inline]
    pub(super) fn prefetch(&self, hash: StateHash) {
        if let Some(group) = self.primary_group(hash) {
            prefetch(group);
        }
    }

    /// Locks the key's slot, if it has one.
    #[inline]
    pub(super) fn lock_slot(&self, hash: StateHash) -> Option<SlotGuard<'_, W>> {
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

    /// Locks a slot into which a key without a slot can be inserted; `None` if no state in both groups may be evicted. The
    /// caller holds the key's insert lock.
    pub(super) fn make_room(
        &self,
        hash: StateHash,
        insert_lock: &mut BitGuard<'_>,
        now: Timestamp,
        priorities: &EvictionPriorities,
        usages: &LimitUsages,
    ) -> Option<VacantSlot<'_, W>> {
        let initial = [0; W];
        let groups = self.pages.groups();
        let primary = self.primary_group(hash)?;
        let alternate = groups.get(hash.alternate_group(groups.len()))?;
        let preferred = hash.preferred_slot(slots_per_group(W));
        if let Some(slot) = lock_free_slot(primary, preferred, now, priorities) {
            return Some(VacantSlot {
                slot,
                table: self,
                evicts: false,
                initial,
            });
        }
        let (slot, evicts, is_primary) = match lock_free_slot(alternate, preferred, now, priorities)
        {
            Some(slot) => (slot, false, false),
            None => {
                let order = VictimOrder {
                    now,
                    priorities,
                    usages,
                    table: Table::of_words(W),
                    share: usages.share(
                        Table::of_words(W),
                        hash.limit().0.get(),
                        self.slots(),
                        slots_per_group(W),
                    ),
                    newcomer: hash.limit().0.get(),
                };
                let (slot, is_primary) = lock_eviction_victim(primary, alternate, &order)?;
                // It may have expired, or been left, since the look for a free one.
                let evicts = !is_free(&slot, now, priorities);
                (slot, evicts, is_primary)
            }
        };
        if !is_primary {
            SlotGroup::mark_spilled(insert_lock);
        }
        Some(VacantSlot {
            slot,
            table: self,
            evicts,
            initial,
        })
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

    /// The index of the slot at this address, counted through all groups.
    fn number_at(&self, address: usize) -> usize {
        let first = self.pages.groups().as_ptr().addr();
        let offset = address.saturating_sub(first);
        let group = offset / size_of::<SlotGroup>();
        let word = offset % size_of::<SlotGroup>() / size_of::<u64>();
        let slot = word.saturating_sub(WORDS - slots_per_group(W) * (W + 1)) / (W + 1);
        group
            .saturating_mul(slots_per_group(W))
            .saturating_add(slot)
    }

    /// The hash of the key in the slot with this index, of which the tag has the lower bits. The caller has locked the slot.
    pub(super) fn whole_hash(&self, number: usize, tag: u64) -> Option<StateHash> {
        let limit = LimitId(NonZeroU16::new(limit_of(tag))?);
        let hash = self.hash_tops.whole_hash(number, tag);
        Some(StateHash::from_parts(hash, limit))
    }

    /// Puts a key into the slot with this index, in a table of the size that it was saved from. Returns whether there is such a
    /// slot.
    pub(super) fn restore(&self, number: usize, hash: StateHash, state: [u64; W]) -> bool {
        let Some(slot) = self.slot(number) else {
            return false;
        };
        let mut slot = slot.lock();
        self.hash_tops.set(number, hash.bits());
        slot.insert(hash.tag(), state);
        true
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

impl<const W: usize> std::fmt::Debug for SlotTable<W> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SlotTable").finish_non_exhaustive()
    }
}

impl SlotTable<1> {
    /// The key's slot in its primary group and its state, if the key is there and the slot is unlocked. Locks nothing.
    #[inline]
    pub(super) fn peek(&self, hash: StateHash) -> Option<(Slot<'_, 1>, u64)> {
        let (primary, tag) = (self.primary_group(hash)?, hash.tag());
        let preferred = hash.preferred_slot(slots_per_group(1));
        let slot = primary.slot(preferred)?;
        if let Some(state) = slot.peek(tag) {
            return Some((slot, state));
        }
        let slot = primary.find_near(tag, preferred)?;
        slot.peek(tag).map(|state| (slot, state))
    }
}

impl VacantSlot<'_, 1> {
    /// The same for a key that owes this much already.
    pub(super) const fn with_debt(mut self, tat: u64) -> Self {
        self.initial = [tat];
        self
    }

    /// Whether the key owed something before it moved in.
    pub(super) const fn has_debt(&self) -> bool {
        self.initial[0] != 0
    }
}

impl<const W: usize> VacantSlot<'_, W> {
    /// Tag and state of the key that the slot still holds.
    pub(super) fn tenant(&self) -> (u64, [u64; W]) {
        (self.slot.tag(), self.slot.state())
    }

    /// Whether somebody has to go for the key.
    pub(super) const fn evicts(&self) -> bool {
        self.evicts
    }

    /// The key's state here: what it owed already, until it has moved in.
    pub(super) fn state(&self, hash: StateHash) -> [u64; W] {
        if self.slot.tag() == hash.tag() {
            self.slot.state()
        } else {
            self.initial
        }
    }

    /// Moves the key in.
    pub(super) fn insert(&mut self, hash: StateHash, state: [u64; W]) {
        let number = self.table.number_at(self.slot.address());
        self.table.hash_tops.set(number, hash.bits());
        self.slot.insert(hash.tag(), state);
    }
}

/// Locks a free slot of the group. Slots that were never used come first, then those with an expired state, and of both the ones
/// near the preferred slot. So a key that comes back finds its slot, as long as new keys find another one.
fn lock_free_slot<'a, const W: usize>(
    group: &'a SlotGroup,
    preferred: usize,
    now: Timestamp,
    priorities: &EvictionPriorities,
) -> Option<SlotGuard<'a, W>> {
    let slots = || {
        let first = group.slot::<W>(preferred).into_iter();
        first.chain(group.slots_near(preferred))
    };
    let lock = |slot: Slot<'a, W>| {
        let free = |guard: &SlotGuard<'_, W>| is_free(guard, now, priorities);
        slot.try_lock().filter(free)
    };
    let is_expired = |slot: &Slot<'_, W>| {
        let priority = priorities.priority_of(limit_of(slot.tag()), slot.peek_state(), now);
        !slot.is_locked() && priority == EvictionPriority::Free
    };
    let unused = slots().filter(|slot| slot.tag() == 0).find_map(lock);
    unused.or_else(|| slots().filter(is_expired).find_map(lock))
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

/// The slot that goes first, and whether it is in the first group.
fn lock_eviction_victim<'a, const W: usize>(
    primary: &'a SlotGroup,
    alternate: &'a SlotGroup,
    order: &VictimOrder<'_>,
) -> Option<(SlotGuard<'a, W>, bool)> {
    // Somebody may use a candidate between the look and the bit; then the next smallest is tried.
    for _ in 0..4 {
        let in_primary = primary.slots().map(|slot| (slot, true));
        let (_, slot, is_primary) = in_primary
            .chain(alternate.slots().map(|slot| (slot, false)))
            .filter(|(slot, _)| !slot.is_locked())
            .filter_map(|(slot, is_primary)| {
                Some((order.rank(slot.tag(), slot.peek_state())?, slot, is_primary))
            })
            .min_by_key(|(rank, ..)| *rank)?;
        if let Some(guard) = slot.try_lock()
            && order.rank(guard.tag(), guard.state()).is_some()
        {
            return Some((guard, is_primary));
        }
    }
    None
}
