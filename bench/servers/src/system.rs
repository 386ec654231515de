//! What only the operating system knows: processor time and memory of another process, on which core it runs, and how many
//! files may be open.
//!
//! The only file here with unsafe code. Must not know: what is measured.
#![allow(
    unsafe_code,
    reason = "processor clocks, affinity and the bound on open files have no safe interface in std"
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

/// The cores that this thread may run on.
pub(crate) fn allowed_cores() -> Vec<usize> {
    // SAFETY: a set of cores is plain bits, of which all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a set of ours of the size that is given, and the call writes nothing else.
    if unsafe { libc::sched_getaffinity(0, size_of::<libc::cpu_set_t>(), &raw mut set) } != 0 {
        return Vec::new();
    }
    let all = 0..usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    // SAFETY: the index is below the size of the set.
    all.filter(|core| unsafe { libc::CPU_ISSET(*core, &set) })
        .collect()
}

/// Binds this thread, and what it starts from now on, to these cores.
pub(crate) fn run_on(cores: &[usize]) -> Result<(), String> {
    // SAFETY: a set of cores is plain bits, of which all zero is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    let most = usize::try_from(libc::CPU_SETSIZE).unwrap_or(0);
    for core in cores.iter().filter(|core| **core < most) {
        // SAFETY: the index is below the size of the set.
        unsafe { libc::CPU_SET(*core, &mut set) };
    }
    // SAFETY: the pointer is to a set of ours of the size that is given, which the call only reads.
    if unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &raw const set) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(format!("cannot run on cores {cores:?}: {error}"));
    }
    Ok(())
}

/// Waits until a poll has events, at most so long, by a timer that is exact to microseconds.
pub(crate) fn wait_for_input(poll: &mio::Poll, timeout: Duration) -> Result<(), String> {
    let mut descriptor = libc::pollfd {
        fd: std::os::fd::AsRawFd::as_raw_fd(poll),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = libc::timespec {
        tv_sec: libc::time_t::try_from(timeout.as_secs()).unwrap_or(libc::time_t::MAX),
        tv_nsec: timeout.subsec_nanos().into(),
    };
    // SAFETY: one descriptor and a timespec of ours outlive the call; no mask of signals is given.
    let ready =
        unsafe { libc::ppoll(&raw mut descriptor, 1, &raw const timeout, std::ptr::null()) };
    let error = std::io::Error::last_os_error();
    if ready < 0 && error.kind() != std::io::ErrorKind::Interrupted {
        return Err(error.to_string());
    }
    Ok(())
}

/// Makes timers of this thread exact: by default the kernel may be 50 microseconds late.
pub(crate) fn exact_timers() {
    // SAFETY: this option takes a number and touches no memory. Where it is refused, timers stay late, which is measured.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_u64) };
}
