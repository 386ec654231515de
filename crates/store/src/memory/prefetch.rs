//! Asks the processor to load memory before it is needed. It changes nothing but time. Must not know: what is in that memory.
#![allow(
    unsafe_code,
    reason = "the instruction takes a raw pointer, and no safe function stands for it"
)]

/// The length of a cache line in bytes.
const LINE_LEN: usize = 64;

/// Asks for all cache lines of a value. On other processors than x86-64 it does nothing.
#[inline]
pub(super) fn prefetch<T>(value: &T) {
    #[cfg(target_arch = "x86_64")]
    for line in (0..size_of::<T>()).step_by(LINE_LEN) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        let address = std::ptr::from_ref(value).cast::<i8>().wrapping_add(line);
        // SAFETY: every x86-64 processor has the instruction. It reads nothing into the program and never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = value;
}
