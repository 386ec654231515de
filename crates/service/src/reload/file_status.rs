//! The reload status of files: their digest when last read, what is in effect, and errors.
//!
//! Must not know: how files are read, what they contain.

use std::path::Path;

use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::source::Diagnostics;

use super::{Fingerprint, ReloadOutcome, ReloadStatus};

/// The status of one file, or of several files that form one policy.
#[derive(Debug)]
pub(crate) struct FileStatus {
    /// What the file has, for log lines: `policy`, `keys`.
    noun: &'static str,
    pub(super) status: ReloadStatus,
    /// The digest of the files when they were last read; `None` if they could not be read.
    last: Option<Fingerprint>,
    /// What the last read found, if it has yet to settle, and since when it is so.
    unsettled: Option<(Option<Fingerprint>, Timestamp)>,
}

impl FileStatus {
    /// The status after the files were first loaded.
    pub(crate) const fn new(
        noun: &'static str,
        generation: u64,
        now: Timestamp,
        hash: Fingerprint,
    ) -> Self {
        Self {
            noun,
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
            unsettled: None,
        }
    }

    /// Whether what was read, `None` if nothing could be, is known or has been the same for the settle time.
    pub(crate) fn is_settled(
        &mut self,
        read: Option<Fingerprint>,
        now: Timestamp,
        settle: Nanos,
    ) -> bool {
        if read == self.last {
            self.unsettled = None;
            return true;
        }
        // A clock that went back starts the settle time again.
        let since = match self.unsettled {
            Some((same, since)) if same == read && since <= now => since,
            _ => now,
        };
        let is_settled = now.since(since) >= settle;
        self.unsettled = (!is_settled).then_some((read, since));
        is_settled
    }

    /// Records that the files were read. Returns whether to load them: always if forced, otherwise if they differ both from the
    /// last read and from the files in effect. The latter happens when an edit is reverted.
    pub(crate) fn record_read(&mut self, path: &Path, hash: Fingerprint, always: bool) -> bool {
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

    /// Records that the files are in effect.
    pub(crate) fn record_loaded(
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
        tracing::info!(path = %path.display(), %hash, generation, "{} loaded", self.noun);
    }

    /// Records that the files cannot be read. Returns whether this is news: polling a missing file again is not.
    pub(crate) fn record_unreadable(&mut self, always: bool, problems: &[Diagnostics]) -> bool {
        let was_readable = self.last.take().is_some();
        if was_readable || always {
            self.record_invalid();
        }
        was_readable || always || self.status.error.as_ref() != problems.first()
    }

    /// Records that the files are invalid.
    pub(crate) const fn record_invalid(&mut self) {
        self.status.refusals = self.status.refusals.saturating_add(1);
    }

    /// Keeps the first file's problems. Logs them for every rejected version and every reload that somebody asked for: a log
    /// that is silent after a second mistake reads as if the file had been loaded.
    pub(crate) fn reject(
        &mut self,
        path: &Path,
        problems: Vec<Diagnostics>,
        is_new: bool,
    ) -> ReloadOutcome {
        if is_new {
            let (path, generation) = (path.display(), self.status.generation);
            let all: String = problems.iter().map(ToString::to_string).collect();
            let noun = self.noun;
            tracing::error!(%path, generation, "{noun} reload failed, keeping the current {noun}:\n{all}");
        }
        self.status.valid = false;
        self.status.error = problems.into_iter().next();
        ReloadOutcome::Rejected
    }

    fn recover(&mut self, path: &Path) {
        if !self.status.valid {
            tracing::info!(path = %path.display(), "{} valid again", self.noun);
        }
        self.status.valid = true;
        self.status.error = None;
    }
}
