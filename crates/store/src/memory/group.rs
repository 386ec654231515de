//! One probe group: two cache lines that hold a few slots, and a header that serialises who moves in.
//!
//! A slot is a tag (who lives there) and a state of W words. The first word of a state is the instant at which it is
//! as if it had never been used, so a slot is free when that instant has passed; its top bit is the slot's lock. A tenant
//! changes only while the slot's bit is held. A new key moves in only while its home group's header bit is held, so no
//! key ever lives in two slots.
//!
//! Must not know: which group a key belongs to, what states mean beyond their expiry.

use super::lock_bit::{BitGuard, load_if_unlocked, load_with_bit};
use super::sync::{AtomicU64, Ordering};

/// Words in a group: 128 bytes, the unit in which the machine's prefetcher fetches.
const WORDS: usize = 16;

/// Set in a header when a key whose home this is had to live elsewhere.
const SPILLED: u64 = 1;

/// The words of one group. All zero is a group that nobody lives in.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct SlotGroup([AtomicU64; WORDS]);

/// How many slots of W-word states a group has: seven of one word, five of two.
pub(super) const fn slots_per_group(words: usize) -> usize {
    (WORDS - 1) / (words + 1)
}

/// One slot of a group.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slot<'a, const W: usize> {
    tag: &'a AtomicU64,
    state: &'a [AtomicU64; W],
}

/// A slot whose bit is held: nobody else reads or writes it.
#[derive(Debug)]
pub(super) struct SlotGuard<'a, const W: usize> {
    slot: Slot<'a, W>,
    bit: BitGuard<'a>,
}

impl SlotGroup {
    /// A group that nobody lives in, for a model checker.
    #[cfg(loom)]
    pub(super) fn empty() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }

    /// The header's bit, under which keys move in.
    pub(super) fn insert_lock(&self) -> BitGuard<'_> {
        BitGuard::lock(&self.0[0])
    }

    /// Whether keys whose home this is may live elsewhere.
    pub(super) fn has_spilled(&self) -> bool {
        load_with_bit(&self.0[0]).0 & SPILLED != 0
    }

    /// Notes that a key whose home this is lives elsewhere.
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

    /// The slot where the tag lives, if it does. It may move out before its bit is taken.
    #[inline]
    pub(super) fn find<const W: usize>(&self, tag: u64, favourite: usize) -> Option<Slot<'_, W>> {
        let slot = self.slot(favourite)?;
        if slot.tag() == tag {
            return Some(slot);
        }
        self.slots().find(|slot| slot.tag() == tag)
    }
}

impl<'a, const W: usize> Slot<'a, W> {
    /// Who lives here, as it was when read.
    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.tag.load(Ordering::Relaxed)
    }

    /// Whether somebody holds the slot, as it was when read.
    pub(super) fn is_locked(self) -> bool {
        load_with_bit(&self.state[0]).1
    }

    /// The state as it was when read. Its words may belong to different moments.
    pub(super) fn peek_state(self) -> [u64; W] {
        self.state.each_ref().map(|word| load_with_bit(word).0)
    }

    /// Where the slot is in memory: the order in which several bits are taken.
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
    /// The state without taking the bit, if this tag lives here and nobody holds the slot.
    ///
    /// The state is read before and after the tag. A tenant changes only under the bit, so if both looks find the same
    /// state and no bit, it was this tenant's in between.
    #[inline]
    pub(super) fn peek(self, tag: u64) -> Option<u64> {
        let state = load_if_unlocked(&self.state[0])?;
        let is_here = self.tag.load(Ordering::Acquire) == tag;
        (is_here && self.state[0].load(Ordering::Relaxed) == state).then_some(state)
    }

    /// Takes the bit if the state is still this one.
    #[inline]
    pub(super) fn lock_if(self, state: u64) -> Option<SlotGuard<'a, 1>> {
        BitGuard::lock_if(&self.state[0], state).map(|bit| SlotGuard { slot: self, bit })
    }
}

impl<'a> SlotGuard<'a, 1> {
    /// The bit by itself: its word is all of the state, and who knows the tenant needs no more.
    #[inline]
    pub(super) fn into_bit(self) -> BitGuard<'a> {
        self.bit
    }
}

impl<const W: usize> SlotGuard<'_, W> {
    /// Who lives here.
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

    /// Replaces the state. Seen by others once the bit is given back.
    #[inline]
    pub(super) fn set(&mut self, state: [u64; W]) {
        for (word, value) in self.slot.state.iter().zip(state).skip(1) {
            word.store(value, Ordering::Relaxed);
        }
        self.bit.set(state[0]);
    }

    /// Leaves the slot empty.
    pub(super) fn clear(&mut self) {
        self.insert(0, [0; W]);
    }

    /// Gives the slot to another tenant.
    pub(super) fn insert(&mut self, tag: u64, state: [u64; W]) {
        // Release: whoever sees the tag without the bit also sees that the bit was taken before.
        self.slot.tag.store(tag, Ordering::Release);
        self.set(state);
    }
}
