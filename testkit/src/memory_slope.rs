//! Whether the memory of a process grows: a line through samples of it.
//!
//! Must not know: which process it is, what it does.

use std::path::PathBuf;

/// Bytes that are resident, one sample for each moment at equal distances.
#[derive(Clone, Debug, Default)]
pub struct MemorySamples(Vec<u64>);

/// The growth that is not noise: allocators keep and return pages as they like.
pub const TOLERATED_GROWTH: u64 = 3 << 20;

impl MemorySamples {
    /// Adds a sample.
    pub fn add(&mut self, bytes: u64) {
        self.0.push(bytes);
    }

    /// How much the memory grew from the first of these samples to the last one, by the line through all of them (least squares).
    /// The first third is left out: caches and pools fill up in it.
    #[must_use]
    pub fn growth(&self) -> i64 {
        let samples = self.0.get(self.0.len() / 3..).unwrap_or_default();
        let count = samples.len() as f64;
        if samples.len() < 2 {
            return 0;
        }
        let mean_at = (count - 1.0) / 2.0;
        let mean = samples.iter().map(|bytes| *bytes as f64).sum::<f64>() / count;
        let (mut covariance, mut variance) = (0.0, 0.0);
        for (at, bytes) in samples.iter().enumerate() {
            let distance = at as f64 - mean_at;
            covariance += distance * (*bytes as f64 - mean);
            variance += distance * distance;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the memory of a process has far fewer than 2^63 bytes"
        )]
        let growth = (covariance / variance * (count - 1.0)) as i64;
        growth
    }

    /// Checks that the memory does not grow.
    ///
    /// # Errors
    /// It grows by more than [`TOLERATED_GROWTH`].
    pub fn check(&self) -> Result<(), String> {
        let growth = self.growth();
        match u64::try_from(growth) {
            Ok(more) if more > TOLERATED_GROWTH => {
                Err(format!("memory grew by {more} bytes: {:?}", self.0))
            }
            _ => Ok(()),
        }
    }
}

/// The resident memory of a process in bytes.
///
/// # Errors
/// The process is gone, or this system has no `/proc`.
pub fn resident_bytes(pid: u32) -> Result<u64, String> {
    let path = PathBuf::from(format!("/proc/{pid}/status"));
    let text = std::fs::read_to_string(&path).map_err(|error| error.to_string())?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB"));
    let kib = kib.and_then(|kib| kib.trim().parse::<u64>().ok());
    kib.map(|kib| kib << 10)
        .ok_or_else(|| format!("{} has no VmRSS", path.display()))
}

/// How many files a process has open.
///
/// # Errors
/// The process is gone, or this system has no `/proc`.
pub fn open_files(pid: u32) -> Result<usize, String> {
    let folder = std::fs::read_dir(format!("/proc/{pid}/fd"));
    Ok(folder.map_err(|error| error.to_string())?.count())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(bytes: impl Fn(u64) -> u64) -> MemorySamples {
        MemorySamples((0..60).map(bytes).collect())
    }

    /// Noise of half a megabyte, the same in every run.
    fn noise(at: u64) -> u64 {
        (at * 7_919 % 97) * 5_000
    }

    #[test]
    fn a_process_that_fills_its_caches_first_and_then_stays_is_fine() {
        let steady = samples(|at| (20 << 20) + at.min(15) * (1 << 20) + noise(at));
        assert_eq!(steady.check(), Ok(()));
        assert_eq!(MemorySamples::default().check(), Ok(()));
        let shrinking = samples(|at| (90 << 20) - at * (1 << 20));
        assert_eq!(shrinking.check(), Ok(()));
    }

    /// Negative control: a leak is found under the same noise.
    #[test]
    fn control_a_leak_is_found() {
        let leaking = samples(|at| (20 << 20) + at * 100_000 + noise(at));
        assert!(
            leaking
                .check()
                .is_err_and(|error| error.contains("memory grew by"))
        );
    }

    #[test]
    fn this_process_has_memory_and_open_files() {
        let pid = std::process::id();
        assert!(resident_bytes(pid).is_ok_and(|bytes| bytes > 1 << 16));
        assert!(open_files(pid).is_ok_and(|count| count >= 3));
    }
}
