//! The state file: one process uses it at a time, it is replaced as a whole, and a damaged one is kept aside.
//!
//! Must not know: what the state contains.

use std::ffi::OsString;
use std::fmt;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, BufWriter};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tollgate_core::Timestamp;
use tollgate_files::{FileWorker, open_regular, remove_leftovers, replace_file};
use tollgate_store::SnapshotError;

/// How long a save may take before it counts as failed. Nothing waits for it but the next save.
const SAVE_DEADLINE: Duration = Duration::from_secs(30);
/// The most damaged files that are kept. The last one is replaced by newer ones.
const MAX_DAMAGED: usize = 10;

/// A file with the state of a process.
#[derive(Debug)]
pub struct StateFile {
    path: PathBuf,
    worker: FileWorker,
    status: Arc<StateFileStatus>,
    /// Locked until the process ends.
    _lock: File,
}

/// Counters of a state file, for metrics and admin pages.
#[derive(Debug, Default)]
pub struct StateFileStatus {
    saves: AtomicU64,
    failed_saves: AtomicU64,
    saved_at: AtomicU64,
    was_damaged: AtomicBool,
    error: Mutex<Option<String>>,
}

/// What was found at the start.
#[derive(Debug)]
pub enum LoadOutcome<T> {
    /// There is no file yet.
    Missing,
    /// An intact file.
    Loaded(T),
    /// The file cannot be used. Unless the process ends, [`keep it aside`](StateFile::keep_aside): a save would replace it.
    Damaged(SnapshotError),
    /// The disk failed, was too slow, or refused access. The file may be intact, so the process must not go on: its first save
    /// would replace the file.
    Unreadable(io::Error),
}

/// The file cannot be used at all.
#[derive(Debug)]
#[non_exhaustive]
pub enum StateFileError {
    /// Another process uses it.
    InUse(PathBuf),
    /// It cannot be locked.
    Lock(PathBuf, io::Error),
    /// It is a folder or a device. That is a wrong setting and no damage, so it is never renamed.
    NotAFile(PathBuf),
}

impl StateFile {
    /// Locks the state file at a path, which need not exist yet.
    ///
    /// # Errors
    /// Another process uses it, its folder is not writable, or it is no regular file.
    pub fn open(path: &Path) -> Result<Self, StateFileError> {
        if fs::metadata(path).is_ok_and(|found| !found.is_file()) {
            return Err(StateFileError::NotAFile(path.to_owned()));
        }
        let lock_path = with_suffix(path, ".lock");
        let unlocked = |error| StateFileError::Lock(lock_path.clone(), error);
        let mut options = OpenOptions::new();
        options.write(true).create(true).truncate(false);
        #[cfg(unix)]
        std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
        let lock = options.open(&lock_path).map_err(unlocked)?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => return Err(StateFileError::InUse(path.to_owned())),
            Err(TryLockError::Error(error)) => return Err(unlocked(error)),
        }
        Ok(Self {
            path: path.to_owned(),
            worker: FileWorker::with_deadline("write", SAVE_DEADLINE),
            status: Arc::default(),
            _lock: lock,
        })
    }

    /// Its path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its counters.
    #[must_use]
    pub const fn status(&self) -> &Arc<StateFileStatus> {
        &self.status
    }

    /// Reads the file. Deletes what a crash left of an earlier save.
    pub fn load<T: Send + 'static>(
        &self,
        read: impl FnOnce(&mut BufReader<File>) -> Result<T, SnapshotError> + Send + 'static,
    ) -> LoadOutcome<T> {
        let path = self.path.clone();
        let loaded = self.worker.run(move || {
            delete_leftovers(&path);
            let file = open_regular(&path)?;
            warn_if_readable_by_others(&path, &file);
            read(&mut BufReader::new(file))
        });
        match loaded.unwrap_or_else(|error| Err(SnapshotError::Io(error.into()))) {
            Ok(state) => LoadOutcome::Loaded(state),
            Err(SnapshotError::Io(error)) if error.kind() == io::ErrorKind::NotFound => {
                LoadOutcome::Missing
            }
            Err(SnapshotError::Io(error)) => LoadOutcome::Unreadable(error),
            Err(reason) => {
                self.status.was_damaged.store(true, Ordering::Relaxed);
                self.status.set_error(Some(reason.to_string()));
                LoadOutcome::Damaged(reason)
            }
        }
    }

    /// Replaces the file with what `write` writes, on a thread of its own. `now` is when it was called.
    ///
    /// # Errors
    /// The file cannot be written in time. The previous file is unchanged then.
    pub fn save(
        &self,
        now: Timestamp,
        write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let path = self.path.clone();
        let saved = self.worker.run(move || replace_file(&path, write));
        let saved = saved.unwrap_or_else(|error| Err(error.into()));
        self.status.record(&saved, now);
        saved
    }

    /// Renames a file that cannot be used: to a name that is free, or to the last of ten names. Returns the name.
    ///
    /// # Errors
    /// The folder is not writable.
    pub fn keep_aside(&self) -> io::Result<PathBuf> {
        let name = |number: usize| match number {
            0 => with_suffix(&self.path, ".damaged"),
            number => with_suffix(&self.path, &format!(".damaged.{number}")),
        };
        let free = (0..MAX_DAMAGED).map(name).find(|name| !name.exists());
        let aside = free.unwrap_or_else(|| name(MAX_DAMAGED - 1));
        fs::rename(&self.path, &aside)?;
        Ok(aside)
    }
}

impl StateFileStatus {
    /// How often the state was saved.
    #[must_use]
    pub fn saves(&self) -> u64 {
        self.saves.load(Ordering::Relaxed)
    }

    /// How often it could not be saved.
    #[must_use]
    pub fn failed_saves(&self) -> u64 {
        self.failed_saves.load(Ordering::Relaxed)
    }

    /// When it was saved last; zero if it never was.
    #[must_use]
    pub fn saved_at(&self) -> Timestamp {
        Timestamp::from_nanos(self.saved_at.load(Ordering::Relaxed))
    }

    /// Whether the file was damaged when the process started.
    #[must_use]
    pub fn was_damaged(&self) -> bool {
        self.was_damaged.load(Ordering::Relaxed)
    }

    /// Why the last load or save failed.
    #[must_use]
    pub fn error(&self) -> Option<String> {
        let error = self.error.lock();
        error.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Notes a save. Logs the first failure after a success, and the first success after a failure.
    fn record(&self, saved: &io::Result<()>, now: Timestamp) {
        let is_new = match saved {
            Ok(()) => {
                self.saves.fetch_add(1, Ordering::Relaxed);
                self.saved_at.store(now.as_nanos(), Ordering::Relaxed);
                self.set_error(None)
            }
            Err(error) => {
                self.failed_saves.fetch_add(1, Ordering::Relaxed);
                self.set_error(Some(error.to_string()))
            }
        };
        match saved {
            Err(error) if is_new => tracing::error!(%error, "state not saved"),
            Ok(()) if is_new => tracing::info!("state saved again"),
            _ => {}
        }
    }

    /// Returns whether there was no error before, or is none any more.
    fn set_error(&self, error: Option<String>) -> bool {
        let mut last = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        let is_new = last.is_some() != error.is_some();
        *last = error;
        is_new
    }
}

impl fmt::Display for StateFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse(path) => write!(
                f,
                "another process uses the state file {}; each process needs its own",
                path.display()
            ),
            Self::Lock(path, error) => {
                write!(f, "cannot lock {}: {error}", path.display())
            }
            Self::NotAFile(path) => {
                let path = path.display();
                write!(
                    f,
                    "the state file {path} is not a regular file; name a file in a folder"
                )
            }
        }
    }
}

impl std::error::Error for StateFileError {}

/// Nobody else writes beside this file, because it is locked.
fn delete_leftovers(path: &Path) {
    let shown = path.display();
    match remove_leftovers(path) {
        Ok(0) => {}
        Ok(files) => tracing::info!(path = %shown, files, "deleted unfinished saves of a crash"),
        Err(error) => {
            tracing::warn!(path = %shown, %error, "cannot delete unfinished saves of a crash");
        }
    }
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path);
    name.push(suffix);
    name.into()
}

#[cfg(unix)]
fn warn_if_readable_by_others(path: &Path, file: &File) {
    use std::os::unix::fs::MetadataExt as _;

    let mode = file.metadata().map_or(0, |about| about.mode());
    if mode & 0o077 != 0 {
        let path = path.display();
        tracing::warn!(%path, "state file contains secrets and is readable by other users; run chmod 600");
    }
}

#[cfg(not(unix))]
fn warn_if_readable_by_others(_path: &Path, _file: &File) {}
