//! The section that the instruction counter counts.
//!
//! Knows nothing of what runs in it.

use std::hint::black_box;

/// Calls `decide` so many times and keeps the compiler from dropping what it answers.
///
/// The counter switches on at this function's name (`xtask/src/callgrind.rs`), so it must stay a function of its own,
/// and what a case prepares must happen before it.
#[inline(never)]
pub fn measured_section<T>(times: u64, mut decide: impl FnMut() -> T) {
    for _ in 0..times {
        black_box(decide());
    }
}
