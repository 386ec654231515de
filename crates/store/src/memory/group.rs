//! One probe group: two cache lines with a few slots, and a header whose lock serialises inserts.
//!
//! A slot is a tag, which identifies its key, and a state of W words. The first word of a state is the instant at which
//! it equals an unused state. So a slot is free when that instant has passed. The top bit of the first word is the
//! slot's lock. The tag changes only while the slot is locked. A new key is inserted only while the header of its
//! primary group is locked, so no key is ever in two slots.
//!
//! Must not know: which group a key belongs to, what states mean beyond their expiry.

use std::ops::Range;

use super::lock_bit::{BitGuard, load_if_unlocked, load_with_bit};
use super::sync::{AtomicU64, Ordering};

/// Words in a group: 128 bytes, the unit that the prefetcher fetches.
pub(super) const WORDS: usize = 16;

/// Header flag: a key whose primary group this is had to be inserted into its alternate group.
const SPILLED: u64 = 1;

/// The words of one group. A group of zeros is empty.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct SlotGroup([AtomicU64; WORDS]);

/// The number of slots with W-word states in a group: seven of one word, five of two.
pub(super) const fn slots_per_group(words: usize) -> usize {
    (WORDS - 1) / (words + 1)
}

/// One slot of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a, const W: usize> {
    tag: &'a AtomicU64,
    state: &'a [AtomicU64; W],
}

/// A locked slot: no other thread reads or writes it.
#[derive(Debug)]
pub(super) struct SlotGuard<'a, const W: usize> {
    slot: Slot<'a, W>,
    bit: BitGuard<'a>,
}

impl SlotGroup {
    /// An empty group for loom.
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// One word of a group that is not divided into slots.
    pub(super) fn word(&self, index: usize) -> Option<&AtomicU64> {
        self.0.get(index)
    }

    /// Locks the header. Keys are inserted under this lock.
    pub(super) fn insert_lock(&self) -> BitGuard<'_> {
        BitGuard::lock(&self.0[0])
    }

    /// Whether keys whose primary group this is may be in their alternate group.
    pub(super) fn has_spilled(&self) -> bool {
        load_with_bit(&self.0[0]).0 & SPILLED != 0
    }

    /// Marks that a key whose primary group this is went to its alternate group.
    pub(super) fn mark_spilled(door: &mut BitGuard<'_>) {
        door.set(door.value() | SPILLED);
    }

    #[inline]
    pub(super) fn slot<const W: usize>(&self, index: usize) -> Option<Slot<'_, W>> {
        let start = WORDS - slots_per_group(W) * (W + 1) + index * (W + 1);
        let (tag, rest) = self.0.get(start..)?.split_first()?;
        Some(Slot {
            tag,
            state: rest.first_chunk()?,
        })
    }

    pub(super) fn slots<const W: usize>(&self) -> impl Iterator<Item = Slot<'_, W>> {
        (0..slots_per_group(W)).filter_map(|index| self.slot(index))
    }

    /// The slot with this tag, if there is one. Its key may change before it is locked.
    #[inline]
    pub(super) fn find<const W: usize>(&self, tag: u64, preferred: usize) -> Option<Slot<'_, W>> {
        let slot = self.slot(preferred)?;
        if slot.tag() == tag {
            return Some(slot);
        }
        self.find_near(tag, preferred)
    }

    /// The same if the preferred slot has another key. Separate from the check of the preferred slot, which is enough for most keys.
    #[inline(never)]
    pub(super) fn find_near<const W: usize>(
        &self,
        tag: u64,
        preferred: usize,
    ) -> Option<Slot<'_, W>> {
        let (slots, half) = (slots_per_group(W), slots_per_group(W) / 2);
        // Constant bounds in both arms, so that the comparisons are unrolled and need no bounds checks.
        match preferred < half {
            true => self
                .find_in(tag, 0..half)
                .or_else(|| self.find_in(tag, half..slots)),
            false => self
                .find_in(tag, half..slots)
                .or_else(|| self.find_in(tag, 0..half)),
        }
    }

    /// The slot with this tag among some. It compares all of them and does not stop at the first: the processor cannot guess where a
    /// search would stop.
    #[inline(always)]
    fn find_in<const W: usize>(&self, tag: u64, slots: Range<usize>) -> Option<Slot<'_, W>> {
        let mut found = None;
        for index in slots {
            let slot = self.slot::<W>(index)?;
            found = if slot.tag() == tag { Some(slot) } else { found };
        }
        found
    }

    /// All slots, those in the cache line of the preferred one first. Keys are inserted and searched in this order, so that nearly all
    /// are found in one line: with more keys than the caches hold, each line is a load from memory.
    pub(super) fn slots_near<const W: usize>(
        &self,
        preferred: usize,
    ) -> impl Iterator<Item = Slot<'_, W>> {
        let slots = slots_per_group(W);
        // Slots from here on are in the second line.
        let half = slots / 2;
        let first = if preferred < half { 0 } else { half };
        let indexes = (first..slots).chain(0..first);
        indexes.filter_map(|index| self.slot(index))
    }
}

impl<'a, const W: usize> Slot<'a, W> {
    /// The tag, which may change after the read.
    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// Whether the slot is locked, which may change after the read.
    pub(super) fn is_locked(self) -> bool {
        load_with_bit(&self.state[0]).1
    }

    /// The state without a lock. Its words may belong to different moments.
    pub(super) fn peek_state(self) -> [u64; W] {
        self.state.each_ref().map(|word| load_with_bit(word).0)
    }

    /// The slot's address: the order in which several slots are locked.
    pub(super) fn address(self) -> usize {
        std::ptr::from_ref(self.tag).addr()
    }

    #[inline]
    pub(super) fn lock(self) -> SlotGuard<'a, W> {
        SlotGuard {
            slot: self,
            bit: BitGuard::lock(&self.state[0]),
        }
    }

    pub(super) fn try_lock(self) -> Option<SlotGuard<'a, W>> {
        BitGuard::try_lock(&self.state[0]).map(|bit| SlotGuard { slot: self, bit })
    }
}

impl<'a> Slot<'a, 1> {
    /// The state without locking, if this tag is in the slot and the slot is unlocked.
    ///
    /// The state is read before and after the tag. The tag changes only under the lock. So if both reads find the same
    /// unlocked state, it belonged to this tag in between.
    #[inline]
    pub(super) fn peek(self, tag: u64) -> Option<u64> {
        let state = load_if_unlocked(&self.state[0])?;
        let is_present = self.tag.load(Ordering::Acquire) == tag;
        (is_present && self.state[0].load(Ordering::Relaxed) == state).then_some(state)
    }

    /// Locks the slot if it still has this state.
    #[inline]
    pub(super) fn lock_if(self, state: u64) -> Option<SlotGuard<'a, 1>> {
        BitGuard::lock_if(&self.state[0], state).map(|bit| SlotGuard { slot: self, bit })
    }
}

impl<'a> SlotGuard<'a, 1> {
    /// The guard of the state word alone. With one word it covers the whole state.
    #[inline]
    pub(super) fn into_bit(self) -> BitGuard<'a> {
        self.bit
    }
}

impl<const W: usize> SlotGuard<'_, W> {
    /// The slot's address.
    pub(super) fn address(&self) -> usize {
        self.slot.address()
    }

    /// The tag of the slot's key.
    #[inline]
    pub(super) fn tag(&self) -> u64 {
        self.slot.tag()
    }

    #[inline]
    pub(super) fn state(&self) -> [u64; W] {
        let mut state = [self.bit.value(); W];
        for (value, word) in state.iter_mut().zip(self.slot.state).skip(1) {
            *value = word.load(Ordering::Relaxed);
        }
        state
    }

    /// Replaces the state. Other threads see it when the guard is dropped.
    #[inline]
    pub(super) fn set(&mut self, state: [u64; W]) {
        for (word, value) in self.slot.state.iter().zip(state).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.bit.set(state[0]);
    }

    /// Empties the slot.
    pub(super) fn clear(&mut self) {
        self.insert(0, [0; W]);
    }

    /// Assigns the slot to another key.
    pub(super) fn insert(&mut self, tag: u64, state: [u64; W]) {
        // Release: a thread that reads this tag without the lock also sees that the lock was taken before.
        self.slot.tag.store(tag, Ordering::Release);
        self.set(state);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// Bytes of a cache line.
    const LINE: usize = 64;

    fn lines_near(group: &SlotGroup, preferred: usize) -> Vec<usize> {
        let slots = group.slots_near::<1>(preferred);
        slots.map(|slot| slot.address() / LINE).collect()
    }

    /// A key whose preferred slot was taken went into the first free slot of its group, often in the other line: with more keys than the
    /// caches hold that is a second load from memory.
    #[test]
    fn slots_in_the_line_of_the_preferred_one_come_first() {
        let group = SlotGroup([const { AtomicU64::new(0) }; WORDS]);
        for preferred in 0..slots_per_group(1) {
            let lines = lines_near(&group, preferred);
            assert_eq!(lines.len(), slots_per_group(1), "each slot is there");
            let own = group.slot::<1>(preferred).unwrap().address() / LINE;
            let first_other = lines.iter().position(|line| *line != own).unwrap();
            assert!(lines[first_other..].iter().all(|line| *line != own));
            assert_eq!(lines[0], own, "{preferred}");
        }
    }

    #[test]
    fn a_key_is_found_in_every_slot() {
        for at in 0..slots_per_group(2) {
            let group = SlotGroup([const { AtomicU64::new(0) }; WORDS]);
            group.slot::<2>(at).unwrap().lock().insert(7, [1, 2]);
            for preferred in 0..slots_per_group(2) {
                let found = group.find::<2>(7, preferred).unwrap();
                assert_eq!(found.peek_state(), [1, 2], "{at} {preferred}");
                assert!(group.find::<2>(8, preferred).is_none());
            }
        }
    }
}
