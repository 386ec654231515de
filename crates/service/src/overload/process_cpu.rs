//! The processor time of this process against what it may use: a signal of the utilization shedder.
//!
//! It is read from `/proc` and the control group four times a second, beside the requests. On systems without them there is
//! no signal. Must not know: requests, what is shed.

use std::collections::VecDeque;
use std::fs;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread::available_parallelism;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tollgate_store::Clock;

use crate::metrics::process_cpu_nanos;
use crate::service::RateLimitService;

/// The time between two readings.
const INTERVAL: Duration = Duration::from_millis(250);
/// The readings over which the share is taken: one second, because `/proc` counts hundredths of a second.
const READINGS: usize = 5;
/// The most bytes of a file of the control group, and the most levels of groups.
const MAX_FILE_BYTES: u64 = 4_096;
const MAX_LEVELS: usize = 32;

/// The share of its processors that this process uses.
#[derive(Debug, Default)]
pub(super) struct ProcessCpu {
    /// In thousandths, plus one; zero if it is not known.
    thousandths: AtomicU32,
}

impl ProcessCpu {
    /// The share from 0 to 1. `None` if it is not measured.
    pub(super) fn share(&self) -> Option<f64> {
        let thousandths = self.thousandths.load(Ordering::Relaxed).checked_sub(1)?;
        Some(f64::from(thousandths) / 1_000.0)
    }

    pub(super) fn record(&self, share: Option<f64>) {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a share is between 0 and 4"
        )]
        let thousandths = share.map_or(0, |share| (share.clamp(0.0, 4.0) * 1_000.0) as u32 + 1);
        self.thousandths.store(thousandths, Ordering::Relaxed);
    }
}

/// Computes the share from readings of the processor time.
#[derive(Debug, Default)]
struct CpuMeter {
    /// The time of each reading since some start, and the processor time.
    readings: VecDeque<(Duration, Duration)>,
}

impl CpuMeter {
    /// Adds a reading, and returns the share of so many processors since the oldest one.
    fn observe(&mut self, at: Duration, used: Duration, processors: f64) -> Option<f64> {
        let oldest = self.readings.front().copied();
        self.readings.push_back((at, used));
        if self.readings.len() > READINGS {
            self.readings.pop_front();
        }
        let (since, used_before) = oldest?;
        let elapsed = at.checked_sub(since)?.as_secs_f64();
        let used = used.checked_sub(used_before)?.as_secs_f64();
        let share = used / (elapsed * processors);
        share.is_finite().then_some(share)
    }
}

impl<C: Clock + 'static> RateLimitService<C> {
    /// Measures the processor time of this process, which `utilization` sheds by. Never completes; spawn it as a task beside
    /// the listeners. On systems without `/proc` it has no effect.
    pub async fn measure_process_cpu(self: Arc<Self>) {
        let (begun, mut meter) = (Instant::now(), CpuMeter::default());
        loop {
            // A container may get another quota while it runs.
            let share = process_cpu_nanos().and_then(|nanos| {
                let used = Duration::from_nanos(nanos);
                meter.observe(begun.elapsed(), used, available_processors())
            });
            self.overload.cpu().record(share);
            sleep(INTERVAL).await;
        }
    }
}

/// The processors that this process may use, with the fraction that its control group allows.
fn available_processors() -> f64 {
    let processors = available_parallelism().map_or(1, usize::from);
    #[expect(clippy::cast_precision_loss, reason = "a machine has few processors")]
    let processors = processors as f64;
    let quota = read(Path::new("/proc/self/cgroup")).and_then(|groups| smallest_quota(&groups));
    quota.map_or(processors, |quota| quota.min(processors))
}

/// The smallest quota of the group and those above it (control groups of version 2).
fn smallest_quota(groups: &str) -> Option<f64> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let root = Path::new("/sys/fs/cgroup");
    let levels = root.join(group);
    let levels = levels.ancestors().take(MAX_LEVELS);
    levels
        .take_while(|level| level.starts_with(root))
        .filter_map(|level| parse_quota(&read(&level.join("cpu.max"))?))
        .min_by(f64::total_cmp)
}

/// Processors from `QUOTA PERIOD`, or none from `max PERIOD`.
fn parse_quota(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    let (quota, period): (f64, f64) = (quota.parse().ok()?, period.parse().ok()?);
    (quota > 0.0 && period > 0.0).then_some(quota / period)
}

fn read(path: &Path) -> Option<String> {
    let mut text = String::new();
    let file = fs::File::open(path).ok()?;
    file.take(MAX_FILE_BYTES).read_to_string(&mut text).ok()?;
    Some(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn millis(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    #[test]
    fn the_share_is_taken_over_a_second_and_of_all_processors() {
        let mut meter = CpuMeter::default();
        assert_eq!(meter.observe(millis(0), millis(500), 2.0), None);
        let mut share = None;
        for tick in 1..=4 {
            share = meter.observe(millis(250 * tick), millis(500 + 475 * tick), 2.0);
        }
        assert!((share.unwrap() - 0.95).abs() < 1e-9, "{share:?}");
        // Idle again: the busy readings leave the window within a second.
        for tick in 5..=9 {
            share = meter.observe(millis(250 * tick), millis(2_400), 2.0);
        }
        assert!(share.unwrap() < 1e-9, "{share:?}");
        assert_eq!(meter.observe(millis(1), millis(1), 0.0), None, "no sense");
    }

    #[test]
    fn a_share_is_kept_in_thousandths_and_may_be_unknown() {
        let cpu = ProcessCpu::default();
        assert_eq!(cpu.share(), None);
        for (share, kept) in [(0.0, 0.0), (0.957_9, 0.957), (9.0, 4.0)] {
            cpu.record(Some(share));
            assert!((cpu.share().unwrap() - kept).abs() < 1e-9);
        }
        cpu.record(None);
        assert_eq!(cpu.share(), None);
    }

    #[test]
    fn a_quota_may_be_a_fraction_of_a_processor_or_absent() {
        assert_eq!(parse_quota("50000 100000\n"), Some(0.5));
        assert_eq!(parse_quota("max 100000\n"), None);
        for wrong in ["", "50000", "0 100000", "5 0", "x y"] {
            assert_eq!(parse_quota(wrong), None, "{wrong}");
        }
        assert!(available_processors() > 0.0);
    }
}
