//! A word whose top bit is a lock. Whoever holds the bit owns the word, and whatever the table says it guards.
//!
//! States are instants below 2^63, so the bit is free. Taking it costs one compare-and-swap and giving it back one store,
//! which is what an unlocked update would cost; and nobody can change a slot's tenant between a look and a swap.
//!
//! Must not know: slots, groups, tenants.

use super::sync::{AtomicU64, Ordering, spin_wait};

const LOCKED: u64 = 1 << 63;

/// The word while its bit is held. Dropping it, also by unwinding, stores the value and clears the bit.
#[derive(Debug)]
pub(super) struct BitGuard<'a> {
    word: &'a AtomicU64,
    value: u64,
}

impl<'a> BitGuard<'a> {
    /// Takes the bit, waiting for whoever holds it. The caller must hold no other bit that the holder may wait for.
    #[inline]
    pub(super) fn lock(word: &'a AtomicU64) -> Self {
        let mut attempt = 0;
        loop {
            if let Some(held) = Self::try_lock(word) {
                return held;
            }
            spin_wait(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Takes the bit if nobody holds it.
    #[inline]
    pub(super) fn try_lock(word: &'a AtomicU64) -> Option<Self> {
        let value = word.load(Ordering::Relaxed);
        if value & LOCKED != 0 {
            return None;
        }
        // Acquire: what the last holder wrote elsewhere (the tenant, a second word) is seen from here on.
        word.compare_exchange(value, value | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self { word, value })
    }

    /// Takes the bit if nobody holds it and the word still has this value.
    #[inline]
    pub(super) fn lock_if(word: &'a AtomicU64, value: u64) -> Option<Self> {
        word.compare_exchange(value, value | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self { word, value })
    }

    /// Where the word is in memory.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self.word).addr()
    }

    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// What the word will hold once the bit is given back. What does not fit below the bit becomes the latest instant
    /// that does: cutting it would make the furthest debt none at all.
    #[inline]
    pub(super) fn set(&mut self, value: u64) {
        self.value = value.min(LOCKED - 1);
    }
}

impl Drop for BitGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: what this holder wrote elsewhere is seen by the next one.
        self.word.store(self.value, Ordering::Release);
    }
}

/// The word, if nobody holds its bit, with everything that was written before it seen.
#[inline]
pub(super) fn load_if_unlocked(word: &AtomicU64) -> Option<u64> {
    let value = word.load(Ordering::Acquire);
    (value & LOCKED == 0).then_some(value)
}

/// The word without its bit, as it was when read. What it says may have changed already.
#[inline]
pub(super) fn load_with_bit(word: &AtomicU64) -> (u64, bool) {
    let value = word.load(Ordering::Relaxed);
    (value & !LOCKED, value & LOCKED != 0)
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn the_bit_is_taken_once_and_given_back_with_the_value() {
        let word = AtomicU64::new(7);
        let mut held = BitGuard::lock(&word);
        assert!(BitGuard::try_lock(&word).is_none());
        assert_eq!(load_with_bit(&word), (7, true));
        held.set(9);
        drop(held);
        assert_eq!(load_with_bit(&word), (9, false));
    }

    #[test]
    fn what_does_not_fit_stays_as_far_ahead_as_it_can() {
        let word = AtomicU64::new(0);
        BitGuard::lock(&word).set(u64::MAX);
        assert_eq!(load_with_bit(&word), (u64::MAX >> 1, false));
    }

    #[test]
    fn a_panic_gives_the_bit_back() {
        let word = AtomicU64::new(7);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _held = BitGuard::lock(&word);
            panic!("in the middle");
        }));
        assert!(unwound.is_err());
        assert_eq!(load_with_bit(&word), (7, false));
    }
}
