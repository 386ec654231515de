//! The upper bits of each slot's hash, beside the slots: only snapshots read them.
//!
//! A slot's tag has the lower 48 bits of its key's hash. The group gives the others, as long as the table has the same size. To
//! move a state to a table of another size the whole hash is needed, so the table keeps the upper 16 bits of each slot here. They
//! are written when a key moves in, so no decision on a known key pays for it. Must not know: keys, states.

use std::io;

use super::group::WORDS;
use super::pages::Pages;
use super::sync::Ordering;

/// Upper bits of a hash that are not in a tag.
const TOP_BITS: u32 = 16;
/// How many of them are in one word.
const PER_WORD: usize = 4;

/// The upper bits of all slots.
pub(super) struct HashTops(Pages);

impl HashTops {
    pub(super) fn for_slots(slots: usize) -> io::Result<Self> {
        Ok(Self(Pages::zeroed(slots.div_ceil(PER_WORD * WORDS))?))
    }

    /// Bytes of the table.
    pub(super) fn size(&self) -> usize {
        size_of_val(self.0.groups())
    }

    /// Notes the hash of the key that moves into a slot. The caller has locked the slot.
    pub(super) fn set(&self, slot: usize, hash: u64) {
        // A model checks locks, and these words need none.
        if cfg!(loom) {
            return;
        }
        let Some((word, shift)) = self.find(slot) else {
            return;
        };
        let relaxed = Ordering::Relaxed;
        let mask = u64::from(u16::MAX) << shift;
        let top = (hash >> (u64::BITS - TOP_BITS)) << shift;
        word.fetch_update(relaxed, relaxed, |all| Some(all & !mask | top))
            .ok();
    }

    /// The hash of the key in a slot, of which the lower bits are in its tag. The caller has locked the slot.
    pub(super) fn whole_hash(&self, slot: usize, tag: u64) -> u64 {
        let top = self.find(slot).map_or(0, |(word, shift)| {
            (word.load(Ordering::Relaxed) >> shift) & u64::from(u16::MAX)
        });
        top << (u64::BITS - TOP_BITS) | tag & (u64::MAX >> TOP_BITS)
    }

    fn find(&self, slot: usize) -> Option<(&super::sync::AtomicU64, u32)> {
        let (word, lane) = (slot / PER_WORD, slot % PER_WORD);
        let group = self.0.groups().get(word / WORDS)?;
        let shift = u32::try_from(lane).ok()?.saturating_mul(TOP_BITS);
        Some((group.word(word % WORDS)?, shift))
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_hash_is_whole_again_and_neighbours_are_left_alone() {
        let tops = HashTops::for_slots(1_000).unwrap();
        let hash = |slot: usize| (slot as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        for slot in 0..1_000 {
            tops.set(slot, u64::MAX);
            tops.set(slot, hash(slot));
        }
        for slot in 0..1_000 {
            let tag = 7 << 48 | hash(slot) & (u64::MAX >> 16);
            assert_eq!(tops.whole_hash(slot, tag), hash(slot), "{slot}");
        }
        tops.set(1_024 * 1_024, 1);
    }
}
