//! The denial log: one line says which limit denied, why, and the key as a digest. A limiter of our own bounds the lines.
//!
//! Denials that are not logged are counted and reported with the next line. Nothing of the request is written but the
//! keyed digest of the key: the same key has the same digest in every line and in the comparison of candidates, and the
//! digest says nothing without the process's secret. Must not know: sockets, how requests are decided.

use std::fmt;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{InvalidQuota, Nanos, Outcome, Rate, Timestamp, TokenBucket};
use tollgate_engine::{DenialReason, Verdict};

use crate::metrics::{Metrics, Transport};

/// How many lines there may be: so many a second, and so many at once.
const SAMPLED: (u64, u64) = (1, 10);
const ALL: (u64, u64) = (1_000, 1_000);

/// Which denials are logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DenialLogMode {
    /// None.
    Off,
    /// About one a second.
    #[default]
    Sampled,
    /// All, up to a thousand a second.
    All,
}

/// What decides whether a denial is logged.
#[derive(Debug)]
pub(crate) struct DenialLog {
    bucket: Option<TokenBucket>,
    /// The bucket's state. Whoever finds it taken is not logged: nobody waits for a line of the log.
    state: Mutex<u64>,
    /// Denials that were not logged since the last that was.
    skipped: AtomicU64,
}

impl DenialLog {
    pub(crate) fn new(which: DenialLogMode) -> Self {
        let built = match which {
            DenialLogMode::Off => None,
            DenialLogMode::Sampled => bucket(SAMPLED).ok(),
            DenialLogMode::All => bucket(ALL).ok(),
        };
        Self {
            bucket: built,
            state: Mutex::new(0),
            skipped: AtomicU64::new(0),
        }
    }

    /// Logs a denial, or counts that it was not logged.
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
        let decided = bucket.decide(*state, now, 1);
        if let Some(next) = decided.next {
            *state = next;
        }
        decided.outcome == Outcome::Allow
    }
}

fn bucket((per_second, burst): (u64, u64)) -> Result<TokenBucket, InvalidQuota> {
    TokenBucket::builder(Rate::new(per_second, Nanos::SECOND))
        .burst(burst)
        .build()
}

/// The digest of the key that was denied.
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
    fn there_are_never_more_lines_than_the_limiter_allows() {
        for (which, at_once, later) in [
            (DenialLogMode::Off, 0, 0),
            (DenialLogMode::Sampled, 10, 1),
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
