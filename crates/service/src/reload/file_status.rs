//! The status of files that are loaded again: what they were when last read, what is in force, what is wrong.
//!
//! Must not know: how files are read, what they say.

use std::path::Path;

use tollgate_core::Timestamp;
use tollgate_policy::source::Diagnostics;

use super::{Fingerprint, ReloadOutcome, ReloadStatus};

/// What is known of one file, or of several that are one policy together.
pub(super) struct FileStatus {
    pub(super) status: ReloadStatus,
    /// What they were when they were last read; `None` if they could not be.
    last: Option<Fingerprint>,
}

impl FileStatus {
    /// They were read for the first time, and are in force.
    pub(super) const fn new(generation: u64, now: Timestamp, hash: Fingerprint) -> Self {
        Self {
            status: ReloadStatus {
                valid: true,
                generation,
                loaded_at: now,
                hash,
                error: None,
                loads: 1,
                refusals: 0,
            },
            last: Some(hash),
        }
    }

    /// They were read. Answers whether they are to be put in force: always if somebody said so, otherwise if they are
    /// neither what they were before nor what is in force, to which a mistake was taken back.
    pub(super) fn record_read(&mut self, path: &Path, hash: Fingerprint, always: bool) -> bool {
        let is_known = self.last.replace(hash) == Some(hash);
        if always {
            return true;
        }
        let is_in_force = self.status.hash == hash;
        if is_in_force && !is_known {
            self.recover(path);
        }
        !is_known && !is_in_force
    }

    /// They are in force.
    pub(super) fn record_loaded(
        &mut self,
        path: &Path,
        generation: u64,
        now: Timestamp,
        hash: Fingerprint,
    ) {
        self.recover(path);
        let status = &mut self.status;
        status.generation = generation;
        status.loaded_at = now;
        status.hash = hash;
        status.loads = status.loads.saturating_add(1);
        tracing::info!(path = %path.display(), %hash, generation, "policy loaded");
    }

    /// They cannot be read. A poll that finds them gone still is no news.
    pub(super) fn record_unreadable(&mut self, always: bool) {
        if self.last.take().is_some() || always {
            self.status.refusals = self.status.refusals.saturating_add(1);
        }
    }

    /// They were read, and are wrong.
    pub(super) const fn record_invalid(&mut self) {
        self.status.refusals = self.status.refusals.saturating_add(1);
    }

    /// Keeps the first thing that is wrong. One line when files go wrong, not one for each byte that somebody writes.
    pub(super) fn reject(&mut self, path: &Path, problems: Vec<Diagnostics>) -> ReloadOutcome {
        let (path, generation) = (path.display(), self.status.generation);
        let all: String = problems.iter().map(ToString::to_string).collect();
        if self.status.valid {
            tracing::error!(%path, generation, "policy refused, the last good one stays in force:\n{all}");
        } else {
            tracing::debug!(%path, generation, "policy still refused:\n{all}");
        }
        self.status.valid = false;
        self.status.error = problems.into_iter().next();
        ReloadOutcome::Rejected
    }

    fn recover(&mut self, path: &Path) {
        if !self.status.valid {
            tracing::info!(path = %path.display(), "the policy is right again");
        }
        self.status.valid = true;
        self.status.error = None;
    }
}
