//! A flat table of fixed size: find a key's slot, or make room for it.
//!
//! No sweeper, no resizing, no growth with the number or length of keys. A key lives in its home group or, if that was
//! full when it came, in its refuge; a slot whose state has expired is as good as empty. When both groups are full of live
//! state, a slot of the limit that is furthest above its share goes, even one whose key is being denied. If all limits there
//! are within theirs, the slot whose loss forgives the least goes, but never one whose key is being denied, unless it is of
//! the newcomer's own limit and that limit forgets. If there is none, there is no room, and the caller decides by other means.
//!
//! Bits are taken in one order, so nobody waits in a circle: doors by address, then slots by address. Whoever looks for
//! room while holding a door only tries slots and never waits for one.
//!
//! Must not know: algorithms, what a state means beyond its expiry and its worth.

use std::cmp::Reverse;
use std::io;

use tollgate_core::Timestamp;
use tollgate_core::limit::WhenFull;

use super::eviction_priority::{EvictionPriorities, EvictionPriority};
use super::group::{Slot, SlotGroup, SlotGuard, slots_per_group};
use super::hash::{StateHash, limit_of};
use super::limit_usage::{LimitUsages, Table};
use super::lock_bit::BitGuard;
use super::pages::Pages;

/// Keys for which a group is meant: with this many on average, fewer than one in ten thousand finds both of its groups
/// full.
const fn keys_per_group(words: usize) -> usize {
    (slots_per_group(words) * 4).div_ceil(7)
}

/// Slots for states of W words.
pub(super) struct SlotTable<const W: usize> {
    pages: Pages,
}

/// Where a new key may move in. The caller holds its home's door until it has, so that it cannot move in twice.
#[derive(Debug)]
pub(super) struct VacantSlot<'a, const W: usize> {
    slot: SlotGuard<'a, W>,
    /// Whether somebody has to go for it.
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
        let slots = self.usages.taken(limit, self.table);
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
    /// A table with room for about so many keys in use at the same time.
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

    /// The key's slot with its bit held, if it has one.
    #[inline]
    pub(super) fn lock_slot(&self, place: StateHash) -> Option<SlotGuard<'_, W>> {
        let home = self.primary_group(place)?;
        let slot = home.slot(place.preferred_slot(slots_per_group(W)))?;
        if slot.tag() == place.tag() {
            let owned = slot.lock();
            if owned.tag() == place.tag() {
                return Some(owned);
            }
        }
        self.lock_other_slot(home, place)
    }

    /// Kept apart from the favourite slot's check, which is all that most calls need.
    #[inline(never)]
    fn lock_other_slot<'a>(
        &'a self,
        home: &'a SlotGroup,
        place: StateHash,
    ) -> Option<SlotGuard<'a, W>> {
        let tag = place.tag();
        if let Some(slot) = home.slots().find(|slot| slot.tag() == tag) {
            let owned = slot.lock();
            if owned.tag() == tag {
                return Some(owned);
            }
        }
        loop {
            let owned = self.find(place)?.lock();
            if owned.tag() == place.tag() {
                return Some(owned);
            }
            // It moved out between the look and the bit.
        }
    }

    /// The key's slot, if it has one. It may move out before its bit is taken.
    #[inline]
    pub(super) fn find(&self, place: StateHash) -> Option<Slot<'_, W>> {
        let groups = self.pages.groups();
        let favourite = place.preferred_slot(slots_per_group(W));
        let home = groups.get(place.primary_group(groups.len()))?;
        home.find(place.tag(), favourite).or_else(|| {
            if !home.has_spilled() {
                return None;
            }
            groups
                .get(place.alternate_group(groups.len()))?
                .find(place.tag(), favourite)
        })
    }

    /// The door of the key's home. While it is held, the key does not move in anywhere.
    pub(super) fn insert_lock(&self, place: StateHash) -> Option<BitGuard<'_>> {
        self.primary_group(place).map(SlotGroup::insert_lock)
    }

    /// Where the key's door is in memory: the order in which several doors are taken, and whether two are the same.
    pub(super) fn insert_lock_address(&self, place: StateHash) -> usize {
        self.primary_group(place)
            .map_or(0, |home| std::ptr::from_ref(home).addr())
    }

    /// A slot that a key which lives nowhere may move into; `None` if every slot must stay. The caller holds the key's
    /// door.
    pub(super) fn make_room(
        &self,
        place: StateHash,
        door: &mut BitGuard<'_>,
        now: Timestamp,
        worths: &EvictionPriorities,
        usages: &LimitUsages,
    ) -> Option<VacantSlot<'_, W>> {
        let initial = [0; W];
        let groups = self.pages.groups();
        let home = self.primary_group(place)?;
        let refuge = groups.get(place.alternate_group(groups.len()))?;
        let favourite = place.preferred_slot(slots_per_group(W));
        if let Some(slot) = lock_free_slot(home, favourite, now, worths) {
            return Some(VacantSlot {
                slot,
                evicts: false,
                initial,
            });
        }
        let (slot, evicts, is_home) = match lock_free_slot(refuge, favourite, now, worths) {
            Some(slot) => (slot, false, false),
            None => {
                let order = VictimOrder {
                    now,
                    priorities: worths,
                    usages,
                    table: Table::of_words(W),
                    share: usages.share(
                        Table::of_words(W),
                        place.limit().0.get(),
                        self.slots(),
                        slots_per_group(W),
                    ),
                    newcomer: place.limit().0.get(),
                };
                let (slot, is_home) = lock_eviction_victim(home, refuge, &order)?;
                // It may have expired, or been left, since the look for a free one.
                let evicts = !is_free(&slot, now, worths);
                (slot, evicts, is_home)
            }
        };
        if !is_home {
            SlotGroup::mark_spilled(door);
        }
        Some(VacantSlot {
            slot,
            evicts,
            initial,
        })
    }

    #[inline]
    fn primary_group(&self, place: StateHash) -> Option<&SlotGroup> {
        let groups = self.pages.groups();
        groups.get(place.primary_group(groups.len()))
    }

    /// How many groups there are.
    pub(super) fn groups(&self) -> usize {
        self.pages.groups().len()
    }

    /// How many slots there are.
    pub(super) fn slots(&self) -> usize {
        self.groups().saturating_mul(slots_per_group(W))
    }

    /// The slot of this number, counted through all groups.
    pub(super) fn slot(&self, number: usize) -> Option<Slot<'_, W>> {
        let group = self.pages.groups().get(number / slots_per_group(W))?;
        group.slot(number % slots_per_group(W))
    }

    /// Whether keys whose home this group is may live elsewhere, once everybody who is moving in has.
    pub(super) fn has_spilled(&self, group: usize) -> bool {
        self.pages.groups().get(group).is_some_and(|group| {
            drop(group.insert_lock());
            group.has_spilled()
        })
    }

    /// Notes that keys whose home this group is may live elsewhere.
    pub(super) fn mark_spilled(&self, group: usize) {
        if let Some(group) = self.pages.groups().get(group) {
            SlotGroup::mark_spilled(&mut group.insert_lock());
        }
    }

    /// Every slot that somebody lives in, as they were when read.
    pub(super) fn occupied_slots(&self) -> impl Iterator<Item = Slot<'_, W>> {
        self.pages
            .groups()
            .iter()
            .flat_map(SlotGroup::slots)
            .filter(|slot| slot.tag() != 0)
    }
}

impl SlotTable<1> {
    /// The favourite slot and its state, if the key lives there and nobody holds it. Nothing is taken by looking.
    #[inline]
    pub(super) fn peek(&self, place: StateHash) -> Option<(Slot<'_, 1>, u64)> {
        let slot = self
            .primary_group(place)?
            .slot(place.preferred_slot(slots_per_group(1)))?;
        slot.peek(place.tag()).map(|state| (slot, state))
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
    /// Who lives here still, and its state.
    pub(super) fn tenant(&self) -> (u64, [u64; W]) {
        (self.slot.tag(), self.slot.state())
    }

    /// Whether somebody has to go for the key.
    pub(super) const fn evicts(&self) -> bool {
        self.evicts
    }

    /// The key's state here: what it owed already, until it has moved in.
    pub(super) fn state(&self, place: StateHash) -> [u64; W] {
        if self.slot.tag() == place.tag() {
            self.slot.state()
        } else {
            self.initial
        }
    }

    /// Moves the key in.
    pub(super) fn insert(&mut self, place: StateHash, state: [u64; W]) {
        self.slot.insert(place.tag(), state);
    }
}

/// A slot of the group that nobody needs, the favourite first.
fn lock_free_slot<'a, const W: usize>(
    group: &'a SlotGroup,
    favourite: usize,
    now: Timestamp,
    worths: &EvictionPriorities,
) -> Option<SlotGuard<'a, W>> {
    let looks_free = |slot: &Slot<'_, W>| {
        let tag = slot.tag();
        tag == 0
            || worths.priority_of(limit_of(tag), slot.peek_state(), now) == EvictionPriority::Free
    };
    let first = group.slot::<W>(favourite).into_iter();
    first.chain(group.slots()).find_map(|slot| {
        if slot.is_locked() || !looks_free(&slot) {
            return None;
        }
        slot.try_lock().filter(|owned| is_free(owned, now, worths))
    })
}

/// Whether nobody needs the slot.
fn is_free<const W: usize>(
    slot: &SlotGuard<'_, W>,
    now: Timestamp,
    worths: &EvictionPriorities,
) -> bool {
    let tag = slot.tag();
    tag == 0 || worths.priority_of(limit_of(tag), slot.state(), now) == EvictionPriority::Free
}

/// The slot that goes first, and whether it is in the first group.
fn lock_eviction_victim<'a, const W: usize>(
    home: &'a SlotGroup,
    refuge: &'a SlotGroup,
    order: &VictimOrder<'_>,
) -> Option<(SlotGuard<'a, W>, bool)> {
    // Somebody may use a candidate between the look and the bit; then the next smallest is tried.
    for _ in 0..4 {
        let at_home = home.slots().map(|slot| (slot, true));
        let (_, slot, is_home) = at_home
            .chain(refuge.slots().map(|slot| (slot, false)))
            .filter(|(slot, _)| !slot.is_locked())
            .filter_map(|(slot, is_home)| {
                Some((order.rank(slot.tag(), slot.peek_state())?, slot, is_home))
            })
            .min_by_key(|(rank, ..)| *rank)?;
        if let Some(owned) = slot.try_lock()
            && order.rank(owned.tag(), owned.state()).is_some()
        {
            return Some((owned, is_home));
        }
    }
    None
}
