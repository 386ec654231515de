//! A spin lock in the top bit of a 64-bit word. The holder owns the word and the data that the table assigns to it.
//!
//! States are instants below 2^63, so the bit is free. Locking costs one compare-and-swap and unlocking one store, as
//! much as an update without a lock. The lock also keeps a slot from being reused between reading and writing it.
//!
//! Must not know: slots, groups, keys.

use super::sync::{AtomicU64, Ordering, spin_wait};

const LOCKED: u64 = 1 << 63;

/// The locked word. Dropping the guard, also during a panic, stores the value and clears the bit.
#[derive(Debug)]
pub(super) struct BitGuard<'a> {
    word: &'a AtomicU64,
    value: u64,
}

impl<'a> BitGuard<'a> {
    /// Locks the word; spins while another thread holds it. The caller must not hold another bit that the holder may
    /// wait for.
    #[inline]
    pub(super) fn lock(word: &'a AtomicU64) -> Self {
        let mut attempt = 0;
        loop {
            if let Some(guard) = Self::try_lock(word) {
                return guard;
            }
            spin_wait(attempt);
            attempt = attempt.saturating_add(1);
        }
    }

    /// Locks the word if it is unlocked.
    #[inline]
    pub(super) fn try_lock(word: &'a AtomicU64) -> Option<Self> {
        let value = word.load(Ordering::Relaxed);
        if value & LOCKED != 0 {
            return None;
        }
        // Acquire: makes the previous holder's writes visible (the tag, a second word).
        word.compare_exchange(value, value | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self { word, value })
    }

    /// Locks the word if it is unlocked and has this value.
    #[inline]
    pub(super) fn lock_if(word: &'a AtomicU64, value: u64) -> Option<Self> {
        word.compare_exchange(value, value | LOCKED, Ordering::Acquire, Ordering::Relaxed)
            .ok()
            .map(|_| Self { word, value })
    }

    /// The address of the word.
    pub(super) fn address(&self) -> usize {
        std::ptr::from_ref(self.word).addr()
    }

    #[inline]
    pub(super) fn value(&self) -> u64 {
        self.value
    }

    /// Sets the value that the word gets when the guard is dropped. A value that does not fit below the bit is capped
    /// at the latest instant; truncating it would turn the largest debt into none.
    #[inline]
    pub(super) fn set(&mut self, value: u64) {
        self.value = value.min(LOCKED - 1);
    }
}

impl Drop for BitGuard<'_> {
    #[inline]
    fn drop(&mut self) {
        // Release: makes this holder's writes visible to the next one.
        self.word.store(self.value, Ordering::Release);
    }
}

/// The word if it is unlocked. Writes that happened before it are visible.
#[inline]
pub(super) fn load_if_unlocked(word: &AtomicU64) -> Option<u64> {
    let value = word.load(Ordering::Acquire);
    (value & LOCKED == 0).then_some(value)
}

/// The word without its bit, and the bit. Both may have changed since.
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
    fn the_bit_is_locked_once_and_cleared_with_the_new_value() {
        let word = AtomicU64::new(7);
        let mut guard = BitGuard::lock(&word);
        assert!(BitGuard::try_lock(&word).is_none());
        assert_eq!(load_with_bit(&word), (7, true));
        guard.set(9);
        drop(guard);
        assert_eq!(load_with_bit(&word), (9, false));
    }

    #[test]
    fn a_value_that_does_not_fit_is_capped() {
        let word = AtomicU64::new(0);
        BitGuard::lock(&word).set(u64::MAX);
        assert_eq!(load_with_bit(&word), (u64::MAX >> 1, false));
    }

    #[test]
    fn a_panic_unlocks_the_bit() {
        let word = AtomicU64::new(7);
        let unwound = catch_unwind(AssertUnwindSafe(|| {
            let _guard = BitGuard::lock(&word);
            panic!("in the middle");
        }));
        assert!(unwound.is_err());
        assert_eq!(load_with_bit(&word), (7, false));
    }
}
