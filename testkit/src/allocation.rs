//! An allocator that counts its calls, thread by thread, for tests that promise to allocate nothing.
//!
//! A test binary makes it its own with `#[global_allocator] static ALLOCATOR: Counting = Counting;` and asks [`calls`].
//! Must not know: what is measured.
#![allow(
    unsafe_code,
    reason = "an allocator that counts has to hand the calls on, and those are unsafe by nature"
)]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static CALLS: Cell<u64> = const { Cell::new(0) };
    static HELD_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// The system's allocator, with a counter in front of it.
#[derive(Clone, Copy, Debug)]
pub struct CountingAllocator;

// SAFETY: every call is handed on unchanged to the system's allocator, which fulfils the contract; the counter is a plain
// cell of the thread, whose first use allocates nothing.
unsafe impl GlobalAlloc for CountingAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.set(CALLS.get() + 1);
        HELD_BYTES.set(HELD_BYTES.get().wrapping_add(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        CALLS.set(CALLS.get() + 1);
        HELD_BYTES.set(HELD_BYTES.get().wrapping_sub(layout.size()));
        // SAFETY: as the caller promised.
        unsafe { System.dealloc(block, layout) }
    }
}

/// How often the work calls the allocator. Always zero where [`CountingAllocator`] is not the binary's allocator, so a test should
/// first show that it counts.
pub fn calls(work: impl FnOnce()) -> u64 {
    let before = CALLS.get();
    work();
    CALLS.get() - before
}

/// How many more bytes are held after the work than before it, in blocks of this thread.
pub fn held_bytes(work: impl FnOnce()) -> usize {
    let before = HELD_BYTES.get();
    work();
    HELD_BYTES.get().wrapping_sub(before)
}
