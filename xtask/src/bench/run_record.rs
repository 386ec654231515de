//! When a study ran, at which commit, and for how long, so that a page of several runs says so.
//!
//! Must not know: what was measured.

use std::fmt;
use std::process::Command;

use crate::process;

/// A run of one study.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct RunRecord {
    /// The day in UTC, as `2026-11-18`.
    pub(super) date: String,
    /// The commit, shortened.
    pub(super) commit: String,
    pub(super) seconds: u64,
}

/// A run that has not ended.
#[expect(
    clippy::disallowed_types,
    reason = "times the developer's own wait; no product code runs on it"
)]
pub(super) struct StartedRun {
    record: RunRecord,
    began: std::time::Instant,
}

impl RunRecord {
    #[expect(
        clippy::disallowed_types,
        reason = "times the developer's own wait; no product code runs on it"
    )]
    pub(super) fn start() -> Result<StartedRun, String> {
        let line = |program: &str, args: &[&str]| {
            let (text, _) = process::capture(Command::new(program).args(args))?;
            Ok::<_, String>(text.trim().to_owned())
        };
        let record = Self {
            date: line("date", &["-u", "+%Y-%m-%d"])?,
            commit: line("git", &["rev-parse", "--short", "HEAD"])?,
            seconds: 0,
        };
        let began = std::time::Instant::now();
        Ok(StartedRun { record, began })
    }

    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let [date, commit, seconds] = words.as_slice() else {
            return Err(format!("`{text}` is no record of a run"));
        };
        Ok(Self {
            date: (*date).to_owned(),
            commit: (*commit).to_owned(),
            seconds: seconds
                .parse()
                .map_err(|error| format!("`{text}` is no record of a run: {error}"))?,
        })
    }
}

impl StartedRun {
    pub(super) fn finish(self) -> RunRecord {
        RunRecord {
            seconds: self.began.elapsed().as_secs(),
            ..self.record
        }
    }
}

impl fmt::Display for RunRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.date, self.commit, self.seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let record = RunRecord {
            date: "2026-11-18".to_owned(),
            commit: "0b875c06".to_owned(),
            seconds: 75,
        };
        assert_eq!(RunRecord::parse(&record.to_string()), Ok(record));
        for wrong in ["", "2026-11-18 0b875c06", "2026-11-18 0b875c06 soon"] {
            assert!(RunRecord::parse(wrong).is_err(), "{wrong}");
        }
    }
}
