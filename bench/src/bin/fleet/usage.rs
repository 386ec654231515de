//! Processor time of this process, its own and the system's on its behalf.
//!
//! Must not know: what is measured.
#![allow(
    unsafe_code,
    reason = "the processor time of a process has no safe interface in std"
)]

use std::time::Duration;

/// What all threads of this process have used so far.
pub(crate) fn processor_time() -> Duration {
    // SAFETY: all zeroes is a value of this type, which has only numbers.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a value of ours that outlives the call, which writes nothing else.
    let answer = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    assert_eq!(answer, 0, "this system keeps no processor time");
    let span = |time: libc::timeval| {
        let micros = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            .saturating_add(Duration::from_micros(micros))
    };
    span(usage.ru_utime).saturating_add(span(usage.ru_stime))
}
