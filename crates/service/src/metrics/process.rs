//! What the operating system says about this process, where it says it in files.
//!
//! The numbers that every exporter has, under the names that dashboards know. Must not know: anything of ours.

use std::fs;
use std::io::Read as _;

/// Ticks in a second, in which Linux tells processes about time. Fixed for programs on every architecture that Rust has
/// a server target for.
const TICKS_PER_SECOND: u64 = 100;
/// None of the files read here is longer; of what is, the rest is not needed.
const MAX_FILE_BYTES: u64 = 65_536;

/// What is known of this process. What is not known is absent.
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

impl ProcessStats {
    /// Looks it up. On systems without `/proc` nothing is known.
    pub(super) fn current() -> Self {
        let stat = read("/proc/self/stat").unwrap_or_default();
        let status = read("/proc/self/status").unwrap_or_default();
        let limits = read("/proc/self/limits").unwrap_or_default();
        let machine = read("/proc/stat").unwrap_or_default();
        let open_fds = fs::read_dir("/proc/self/fd").ok();
        Self {
            // One of them is the directory that is being read.
            open_fds: open_fds.map(|all| (all.count() as u64).saturating_sub(1)),
            ..Self::parse(&stat, &status, &limits, &machine)
        }
    }

    fn parse(stat: &str, status: &str, limits: &str, machine: &str) -> Self {
        // The name of the program may contain anything, even spaces and brackets, so fields count from the last one.
        let fields = stat.rsplit_once(") ").map(|(_, rest)| rest);
        let field = |number: usize| {
            // The first field after the name is the third.
            let word = fields?.split(' ').nth(number.checked_sub(3)?)?;
            word.trim().parse::<u64>().ok()
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
    fn a_process_is_understood_whatever_it_is_called() {
        let stat = "42 (a) b (c) S 1 42 42 0 -1 4194560 1 2 3 4 150 50 7 8 20 0 9 0 1000 123456 789 18446744073709551615";
        let status = "Name:\ta) b (c\nVmSize:\t  2048 kB\nVmRSS:\t     512 kB\nThreads:\t9\n";
        let limits = "Limit  Soft  Hard  Units\nMax open files            1024                 524288               files\n";
        let told = ProcessStats::parse(stat, status, limits, "cpu 1 2\nbtime 1700000000\n");
        let expected = ProcessStats {
            cpu_nanos: Some(2_000_000_000),
            resident_bytes: Some(512 * 1_024),
            virtual_bytes: Some(2_048 * 1_024),
            open_fds: None,
            max_fds: Some(1_024),
            threads: Some(9),
            started_nanos: Some(1_700_000_010_000_000_000),
        };
        assert_eq!(told, expected);
    }

    #[test]
    fn what_is_not_said_is_not_known() {
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
    fn linux_tells_everything_about_this_process() {
        let here = ProcessStats::current();
        assert!(here.resident_bytes.is_some_and(|bytes| bytes > 100_000));
        assert!(here.virtual_bytes >= here.resident_bytes);
        assert!(here.open_fds.is_some_and(|fds| fds >= 3));
        assert!(here.cpu_nanos.is_some() && here.threads.is_some_and(|threads| threads >= 1));
        let then = here.started_nanos.unwrap();
        assert!(then > 1_600_000_000_000_000_000, "{then}");
    }
}
