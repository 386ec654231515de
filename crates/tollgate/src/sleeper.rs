//! How a limiter sleeps: the sleeper, and the jitter that it adds.
//!
//! Must not know: limits, keys, why a caller waits.

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::time::Duration;

/// Sleeps for [`Limiter::wait`](crate::Limiter::wait). A test can pass one that advances its clock instead.
pub trait Sleeper: Send + Sync {
    /// Blocks for at least `time`.
    fn sleep(&self, time: Duration);
}

impl<F: Fn(Duration) + Send + Sync> Sleeper for F {
    fn sleep(&self, time: Duration) {
        self(time);
    }
}

/// Calls [`std::thread::sleep`].
pub(crate) struct ThreadSleeper;

impl Sleeper for ThreadSleeper {
    #[expect(
        clippy::disallowed_methods,
        reason = "a caller of `wait` asks to block its thread"
    )]
    fn sleep(&self, time: Duration) {
        std::thread::sleep(time);
    }
}

/// The sleeper of a limiter and its jitter.
pub(crate) struct JitteredSleeper {
    sleeper: Box<dyn Sleeper>,
    jitter: Duration,
}

impl JitteredSleeper {
    pub(crate) fn new(sleeper: Box<dyn Sleeper>, jitter: Duration) -> Self {
        Self { sleeper, jitter }
    }

    pub(crate) fn sleep(&self, time: Duration) {
        self.sleeper.sleep(time);
    }

    /// `least` plus a random part of the jitter.
    pub(crate) fn with_jitter(&self, least: Duration) -> Duration {
        if self.jitter.is_zero() {
            return least;
        }
        // A new `RandomState` is seeded by the operating system, so the hash of a constant is random.
        let random = u128::from(RandomState::new().hash_one(0_u8));
        let extra = (self.jitter.as_nanos().saturating_mul(random)) >> 64;
        let extra = Duration::from_nanos(u64::try_from(extra).unwrap_or(u64::MAX));
        least.saturating_add(extra)
    }
}

impl fmt::Debug for JitteredSleeper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JitteredSleeper")
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jitter_adds_up_to_its_length_and_takes_nothing_away() {
        let (least, jitter) = (Duration::from_secs(5), Duration::from_secs(2));
        let sleeper = JitteredSleeper::new(Box::new(ThreadSleeper), jitter);
        let times: Vec<_> = (0..1_000).map(|_| sleeper.with_jitter(least)).collect();
        assert!(
            times
                .iter()
                .all(|time| *time >= least && *time < least + jitter)
        );
        let late = times
            .iter()
            .filter(|time| **time > least + jitter / 2)
            .count();
        assert!(
            (300..700).contains(&late),
            "{late} of 1000 in the later half"
        );
        let without_jitter = JitteredSleeper::new(Box::new(ThreadSleeper), Duration::ZERO);
        assert_eq!(without_jitter.with_jitter(least), least);
    }
}
