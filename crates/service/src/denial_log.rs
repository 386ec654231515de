//! The denial log: one line for a denial with the limit, the reason, and a digest of the key. A token bucket bounds the rate.
//!
//! Suppressed lines are counted, and the next line reports their number. A line has nothing of the request but the keyed
//! digest of the key. A key has the same digest in every line and in the comparison of candidates; without the process's
//! secret the digest reveals nothing. Must not know: sockets, how requests are decided.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{InvalidQuota, Nanos, Outcome, Rate, Timestamp, TokenBucket};
use tollgate_engine::{DenialReason, Verdict};

use crate::metrics::{Metrics, Transport};

/// Lines per second, and the burst.
const SAMPLED: (u64, u64) = (1, 1);
const ALL: (u64, u64) = (1_000, 1_000);

/// Which denials are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DenialLogMode {
    /// None.
    Off,
    /// At most one per second.
    #[default]
    Sampled,
    /// All, up to 1,000 per second.
    All,
}

/// Logs denials, at most as many as its token bucket admits.
#[derive(Debug)]
pub(crate) struct DenialLog {
    bucket: Option<TokenBucket>,
    /// The bucket's state. If another thread holds the lock, the line is suppressed, so that no request waits for the log.
    state: Mutex<u64>,
    /// Denials that were not logged since the last line.
    skipped: AtomicU64,
}

impl DenialLog {
    pub(crate) fn new(which: DenialLogMode) -> Self {
        let bucket = match which {
            DenialLogMode::Off => None,
            DenialLogMode::Sampled => build_bucket(SAMPLED).ok(),
            DenialLogMode::All => build_bucket(ALL).ok(),
        };
        Self {
            bucket,
            state: Mutex::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Logs a denial, or counts it as suppressed.
    pub(crate) fn record(
        &self,
        metrics: &Metrics,
        transport: Transport,
        verdict: &Verdict,
        now: impl Fn() -> Timestamp,
    ) {
        let Some(bucket) = &self.bucket else {
            return;
        };
        if !self.has_room(bucket, now()) {
            self.skipped.fetch_add(1, Ordering::Relaxed);
            metrics.record_suppressed_log();
            return;
        }
        let retry_after_ms = match verdict.outcome() {
            Outcome::Deny { retry_after } => Some(retry_after.as_millis_ceil()),
            _ => None,
        };
        tracing::info!(
            transport = transport.name(),
            limit = verdict.rule_name(),
            reason = verdict.reason().map(DenialReason::as_str),
            key = key_digest(verdict),
            retry_after_ms,
            not_logged = self.skipped.swap(0, Ordering::Relaxed),
            "denied"
        );
    }

    fn has_room(&self, bucket: &TokenBucket, now: Timestamp) -> bool {
        let Ok(mut state) = self.state.try_lock() else {
            return false;
        };
        let transition = bucket.decide(*state, now, 1);
        if let Some(next) = transition.next {
            *state = next;
        }
        transition.outcome == Outcome::Allow
    }
}

fn build_bucket((per_second, burst): (u64, u64)) -> Result<TokenBucket, InvalidQuota> {
    TokenBucket::builder(Rate::new(per_second, Nanos::SECOND))
        .burst(burst)
        .build()
}

/// The hexadecimal digest of the denied key.
fn key_digest(verdict: &Verdict) -> Option<String> {
    let key = verdict.key(verdict.binding()?);
    let digest = verdict.generation().rules().digest(key);
    Some(digest.iter().map(|byte| format!("{byte:02x}")).collect())
}

impl FromStr for DenialLogMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "off" => Ok(Self::Off),
            "sampled" => Ok(Self::Sampled),
            "all" => Ok(Self::All),
            _ => Err("it must be off, sampled or all".to_owned()),
        }
    }
}

impl fmt::Display for DenialLogMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Off => "off",
            Self::Sampled => "sampled",
            Self::All => "all",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_never_has_more_lines_than_its_token_bucket_admits() {
        for (which, at_once, later) in [
            (DenialLogMode::Off, 0, 0),
            // It had a burst of ten: the log of a quiet server had ten lines in 3 ms.
            (DenialLogMode::Sampled, 1, 1),
            (DenialLogMode::All, 1_000, 1_000),
        ] {
            let denials = DenialLog::new(which);
            let lines = |now| {
                let room = |_: &u32| {
                    let bucket = denials.bucket.as_ref();
                    bucket.is_some_and(|bucket| denials.has_room(bucket, now))
                };
                (0..5_000).filter(room).count()
            };
            let now = Timestamp::from_secs(1_000);
            assert_eq!(lines(now), at_once, "{which}");
            assert_eq!(lines(now), 0, "{which}");
            assert_eq!(lines(now.after(Nanos::SECOND)), later, "{which}");
            assert_eq!(which.to_string().parse(), Ok(which));
        }
        assert!("some".parse::<DenialLogMode>().is_err());
    }
}
