//! Time on the wall and time on the processor, and the memory that is resident.
//!
//! The only file here that asks the system. Must not know: what is measured.
#![allow(
    unsafe_code,
    reason = "the processor time of a thread has no safe interface in std"
)]

use std::time::{Duration, Instant};

/// Wall time since it was started.
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}

/// Processor time that the calling thread has used.
pub(crate) fn thread_time() -> Duration {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours that outlives the call, which writes nothing else.
    let answer = unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    assert_eq!(answer, 0, "this system keeps no processor time of threads");
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Duration::new(seconds, u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Bytes of this process that are resident. Linux only; elsewhere it is an error.
pub(crate) fn resident() -> Result<u64, String> {
    let path = "/proc/self/statm";
    let text = std::fs::read_to_string(path).map_err(|error| format!("{path}: {error}"))?;
    let pages = text
        .split(' ')
        .nth(1)
        .and_then(|word| word.parse::<u64>().ok());
    // SAFETY: reads a constant of the system.
    let page = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    let page = u64::try_from(page).map_err(|error| format!("page size: {error}"))?;
    Ok(pages.ok_or_else(|| format!("{path} reads `{text}`"))? * page)
}
