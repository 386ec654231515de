//! Atomics and spin waiting: the standard ones, or loom's in model tests.
//!
//! Must not know: what they are used for.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

#[cfg(all(debug_assertions, not(loom)))]
thread_local! {
    static WAITS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

/// How often this thread waited for a lock bit, if that is counted. A concurrency test whose threads never met proves
/// nothing.
pub(super) fn waits_of_this_thread() -> Option<u64> {
    #[cfg(all(debug_assertions, not(loom)))]
    return Some(WAITS.get());
    #[cfg(not(all(debug_assertions, not(loom))))]
    None
}

/// Called between attempts to take a lock bit: spins at first, then yields.
#[cfg(not(loom))]
pub(super) fn spin_wait(attempt: u32) {
    #[cfg(debug_assertions)]
    if attempt == 0 {
        WAITS.set(WAITS.get().saturating_add(1));
    }
    if attempt < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn spin_wait(_attempt: u32) {
    loom::thread::yield_now();
}

/// Called after another thread wrote the same word. An immediate retry would only move the cache line back and forth.
/// Waiting for about a microsecond lets the other thread decide many times with the line in its cache. On one hot key,
/// two threads decided more than twice as fast with it.
#[cfg(not(loom))]
#[cold]
pub(super) fn back_off() {
    for _ in 0..24 {
        std::hint::spin_loop();
    }
}

#[cfg(loom)]
pub(super) fn back_off() {}
