//! The atomics that the table uses: the machine's, or a model checker's that tries every order of events.
//!
//! Must not know: what they are used for.

#[cfg(not(loom))]
pub(super) use std::sync::atomic::{AtomicU64, Ordering};

#[cfg(loom)]
pub(super) use loom::sync::atomic::{AtomicU64, Ordering};

/// Called between attempts to take a lock bit: spin a little, then let somebody else run.
#[cfg(not(loom))]
pub(super) fn wait(attempt: u32) {
    if attempt < 64 {
        std::hint::spin_loop();
    } else {
        std::thread::yield_now();
    }
}

#[cfg(loom)]
pub(super) fn wait(_attempt: u32) {
    loom::thread::yield_now();
}
