//! Reads the standard process metrics of Prometheus from `/proc`.
//!
//! Must not know: anything about the rate limiter.

use std::fs;
use std::io::Read as _;

/// Clock ticks per second in `/proc`. It is 100 on every architecture for which Rust has a server target.
const TICKS_PER_SECOND: u64 = 100;
/// The most bytes that are read from a file. None of these files is longer.
const MAX_FILE_BYTES: u64 = 65_536;

/// The process's metrics. A metric that cannot be read is `None`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(super) struct ProcessStats {
    /// User and system time in nanoseconds.
    pub(super) cpu_nanos: Option<u64>,
    pub(super) resident_bytes: Option<u64>,
    pub(super) virtual_bytes: Option<u64>,
    pub(super) open_fds: Option<u64>,
    pub(super) max_fds: Option<u64>,
    pub(super) threads: Option<u64>,
    /// Nanoseconds since 1970.
    pub(super) started_nanos: Option<u64>,
}

/// The user and system time of this process in nanoseconds. `None` on systems without `/proc`.
pub(crate) fn process_cpu_nanos() -> Option<u64> {
    let stat = read("/proc/self/stat")?;
    ProcessStats::parse(&stat, "", "", "").cpu_nanos
}

impl ProcessStats {
    /// The current values. On systems without `/proc` all are `None`.
    pub(super) fn current() -> Self {
        let stat = read("/proc/self/stat").unwrap_or_default();
        let status = read("/proc/self/status").unwrap_or_default();
        let limits = read("/proc/self/limits").unwrap_or_default();
        let machine = read("/proc/stat").unwrap_or_default();
        let open_fds = fs::read_dir("/proc/self/fd").ok();
        Self {
            // One of them is the open directory itself.
            open_fds: open_fds.map(|all| (all.count() as u64).saturating_sub(1)),
            ..Self::parse(&stat, &status, &limits, &machine)
        }
    }

    fn parse(stat: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The program's name may contain spaces and brackets, so fields are counted from its closing bracket.
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest);
        let field = |number: usize| {
            // The first field after the name is the third.
            let field = fields?.split(' ').nth(number.checked_sub(3)?)?;
            field.trim().parse::<u64>().ok()
        };
        let kilobytes = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name))?;
            let number = line.trim().strip_suffix(" kB")?;
            number.trim().parse::<u64>().ok()?.checked_mul(1_024)
        };
        let ticks = |ticks: u64| ticks.checked_mul(1_000_000_000 / TICKS_PER_SECOND);
        let max_fds = limits
            .lines()
            .find_map(|line| line.strip_prefix("Max open files"));
        let booted = machine.lines().find_map(|line| line.strip_prefix("btime "));
        let booted = booted.and_then(|seconds| seconds.trim().parse::<u64>().ok());
        let started = || {
            let since = ticks(field(22)?)?;
            booted?.checked_mul(1_000_000_000)?.checked_add(since)
        };
        Self {
            cpu_nanos: field(14)
                .zip(field(15))
                .and_then(|(user, system)| ticks(user.checked_add(system)?)),
            resident_bytes: kilobytes("VmRSS:"),
            virtual_bytes: kilobytes("VmSize:"),
            open_fds: None,
            max_fds: max_fds.and_then(|rest| rest.split_whitespace().next()?.parse().ok()),
            threads: field(20),
            started_nanos: started(),
        }
    }
}

fn read(path: &str) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stat_is_parsed_whatever_the_programs_name() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 1000 123456 789 18446744073709551615";
        let status = "Name:\ta) b (c\nVmSize:\t  2048 kB\nVmRSS:\t     512 kB\nThreads:\t9\n";
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        let stats = ProcessStats::parse(stat, status, limits, "cpu 1 2\nbtime 1700000000\n");
        let expected = ProcessStats {
            cpu_nanos: Some(2_000_000_000),
            resident_bytes: Some(512 * 1_024),
            virtual_bytes: Some(2_048 * 1_024),
            open_fds: None,
            max_fds: Some(1_024),
            threads: Some(9),
            started_nanos: Some(1_700_000_010_000_000_000),
        };
        assert_eq!(stats, expected);
    }

    #[test]
    fn missing_or_invalid_values_are_none() {
        assert_eq!(ProcessStats::parse("", "", "", ""), ProcessStats::default());
        let unlimited =
            "Max open files            unlimited            unlimited            files\n";
        assert_eq!(
            ProcessStats::parse("1 (x) S", "VmRSS:\tmany kB\n", unlimited, "btime soon\n"),
            ProcessStats::default()
        );
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn linux_provides_all_metrics_of_this_process() {
        let stats = ProcessStats::current();
        assert!(stats.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(stats.virtual_bytes >= stats.resident_bytes);
        assert!(stats.open_fds.is_some_and(|fds| fds >= 3));
        assert!(stats.cpu_nanos.is_some() && stats.threads.is_some_and(|threads| threads >= 1));
        let then = stats.started_nanos.unwrap();
        assert!(then > 1_600_000_000_000_000_000, "{then}");
    }
}
