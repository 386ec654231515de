//! What only the operating system knows: processor time and memory of another process, and how many files may be open.
//!
//! The only file here with unsafe code. Must not know: what is measured.
#![allow(
    unsafe_code,
    reason = "the processor clock of another process and the bound on open files have no safe interface in std"
)]

use std::time::Duration;

/// Processor time that a process has used so far, all its threads together, its own and the system's on its behalf.
pub(crate) fn processor_time(process: u32) -> Result<Duration, String> {
    let id = libc::pid_t::try_from(process).map_err(|error| error.to_string())?;
    let mut clock = 0;
    // SAFETY: the pointer is to a clock id of ours that outlives the call, which writes nothing else.
    let found = unsafe { libc::clock_getcpuclockid(id, &raw mut clock) };
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: the pointer is to a timespec of ours that outlives the call, which writes nothing else.
    let read = unsafe { libc::clock_gettime(clock, &raw mut time) };
    if found != 0 || read != 0 {
        return Err(format!("process {process} has no processor clock"));
    }
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    Ok(Duration::new(
        seconds,
        u32::try_from(time.tv_nsec).unwrap_or(0),
    ))
}

/// Bytes of a process that are resident. Linux only; elsewhere it is an error.
pub(crate) fn resident(process: u32) -> Result<u64, String> {
    let path = format!("/proc/{process}/status");
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let kilobytes = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:"))
        .and_then(|rest| rest.trim().strip_suffix("kB"))
        .and_then(|number| number.trim().parse::<u64>().ok());
    Ok(kilobytes.ok_or_else(|| format!("{path} says nothing of VmRSS"))? * 1_024)
}

/// Raises the limit of open files to the hard limit, for this process and its children, and returns it.
pub(crate) fn raise_open_files() -> u64 {
    let mut bounds = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a struct of ours that outlives the call, which writes nothing else.
    if unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut bounds) } != 0 {
        return 0;
    }
    bounds.rlim_cur = bounds.rlim_max;
    // SAFETY: the pointer is to a struct of ours, which the call only reads.
    if unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const bounds) } != 0 {
        return 0;
    }
    bounds.rlim_cur
}
