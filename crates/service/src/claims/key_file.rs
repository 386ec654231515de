//! The file with the keys: read again when it has changed and settled. The current keys stay if it is invalid.
//!
//! Must not know: tokens, when to look at the file.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_core::{Nanos, Timestamp};
use tollgate_files::{FileWorker, read_regular};

use super::key_set::KeySet;
use crate::reload::{FileStatus, Fingerprint, ReloadOutcome, whole_file_problem};

/// Identity providers publish a few kilobytes.
const MAX_FILE_BYTES: u64 = 1_048_576;

/// A file with a JWK Set.
#[derive(Debug)]
pub(super) struct KeyFile {
    path: PathBuf,
    worker: FileWorker,
    /// Locked during a reload, so that an older version never replaces a newer one.
    turn: Mutex<()>,
    status: Mutex<FileStatus>,
}

impl KeyFile {
    /// Reads the file for the first time.
    pub(super) fn open(path: &Path) -> Result<(Self, KeySet), String> {
        let worker = FileWorker::new("read");
        let text = read(&worker, path)?;
        let keys = KeySet::parse(&text)?;
        let hash = Fingerprint::from_parts([text.as_slice()]);
        let file = Self {
            path: path.to_owned(),
            worker,
            turn: Mutex::default(),
            // Nobody asks when the first keys were loaded.
            status: Mutex::new(FileStatus::new("keys", 1, Timestamp::EPOCH, hash)),
        };
        Ok((file, keys))
    }

    /// Reads the file, and passes its keys to `swap` if it has changed, has been the same for the settle time, and is valid.
    pub(super) fn reload(
        &self,
        settle: Nanos,
        now: Timestamp,
        swap: impl FnOnce(KeySet) -> u64,
    ) -> ReloadOutcome {
        // It guards no data, so poison means nothing.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let text = read(&self.worker, &self.path);
        let hash = text.as_ref().ok();
        let hash = hash.map(|text| Fingerprint::from_parts([text.as_slice()]));
        let mut status = self.status();
        if !status.is_settled(hash, now, settle) {
            return ReloadOutcome::Settling;
        }
        let problem = |why: &str| vec![whole_file_problem(&self.path, why)];
        let (text, hash) = match (text, hash) {
            (Ok(text), Some(hash)) => (text, hash),
            (text, _) => {
                let problems = problem(&text.err().unwrap_or_default());
                let is_new = status.record_unreadable(false, &problems);
                return status.reject(&self.path, problems, is_new);
            }
        };
        if !status.record_read(&self.path, hash, false) {
            return ReloadOutcome::Unchanged;
        }
        match KeySet::parse(&text) {
            Ok(keys) => {
                let version = swap(keys);
                status.record_loaded(&self.path, version, now, hash);
                ReloadOutcome::Reloaded(version)
            }
            Err(why) => {
                status.record_invalid();
                status.reject(&self.path, problem(&why), true)
            }
        }
    }

    fn status(&self) -> MutexGuard<'_, FileStatus> {
        // It is written after all other steps, so a poisoned status is still consistent.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn read(worker: &FileWorker, path: &Path) -> Result<Vec<u8>, String> {
    let path = path.to_owned();
    let read = worker.run(move || read_regular(&path, MAX_FILE_BYTES));
    let text = read.map_err(|error| error.to_string())?;
    text.map_err(|error| error.to_string())
}
