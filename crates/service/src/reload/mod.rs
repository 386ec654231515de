//! Reloads rules from files when the files change, and keeps the current rules if the files are invalid.
//!
//! [`Reloader`] reads the files, compiles them and swaps the rules; if a step fails, the current rules stay and
//! [`ReloadStatus`] has the error. [`Reloadable`] implements the steps for one kind of rules: [`PolicyEngine`] for policy
//! files. [`FileWatcher`] triggers reloads by file system events and by polling; [`Reloader::reload_now`] is for signals and
//! operators. Files are read on a thread of their own with a deadline, and nothing but another reload waits for it.
//! Must not know: requests, signals, what files contain.

mod debounce;
mod file_status;
mod policy;
#[cfg(test)]
mod tests;
mod watch;

pub use debounce::{ChangeEvents, WatchEvent, WatchTiming, run_debounced};
pub use policy::{PolicyEngine, PolicyReloader};
pub use watch::FileWatcher;

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ring::digest;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::LimitIdsExhausted;
use tollgate_files::FileWorker;
use tollgate_policy::source::{Diagnostic, Diagnostics, SourceLocation};

pub(crate) use self::file_status::FileStatus;

/// Files as they were read: paths and bytes, in order.
pub type Sources = Vec<(PathBuf, Vec<u8>)>;

/// An engine whose rules come from files.
pub trait Reloadable: Send + Sync {
    /// The compiled rules.
    type Rules;

    /// How files are compiled.
    type Options;

    /// Reads the file or the files at a path.
    ///
    /// # Errors
    /// The problems of each file that cannot be read.
    fn read(path: &Path) -> Result<Sources, Vec<Diagnostics>>;

    /// A digest of the files: the same everywhere for the same files.
    fn fingerprint(sources: &Sources) -> Fingerprint;

    /// Compiles the files.
    ///
    /// # Errors
    /// The problems of each invalid file.
    fn compile(
        sources: Sources,
        path: &Path,
        secret: [u8; 16],
        options: &Self::Options,
    ) -> Result<Self::Rules, Vec<Diagnostics>>;

    /// How the files of this engine are compiled.
    fn options(&self) -> &Self::Options;

    /// Replaces the rules. Returns the number of the new generation.
    ///
    /// # Errors
    /// There are no ids left for new limits. Then nothing changes.
    fn swap(&self, rules: Self::Rules) -> Result<u64, LimitIdsExhausted>;

    /// The names of the limits in effect.
    fn limit_names(&self) -> Vec<Box<str>>;

    /// The current generation.
    fn generation(&self) -> u64;

    /// The current time of the engine's clock.
    fn now(&self) -> Timestamp;
}

/// The status of a file and of the rules in effect.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadStatus {
    /// Whether the file as it is now is in effect. If not, an earlier version is.
    pub valid: bool,
    /// The generation that was loaded from this file last.
    pub generation: u64,
    /// When it was loaded.
    pub loaded_at: Timestamp,
    /// The digest of the version in effect.
    pub hash: Fingerprint,
    /// The problems of the file as it is now.
    pub error: Option<Diagnostics>,
    /// The number of successful loads, including the first.
    pub loads: u64,
    /// The number of rejected versions. A file that stays invalid or missing counts once.
    pub refusals: u64,
}

/// A digest of a policy's text: the same in every process, so that two servers can be compared by their logs.
///
/// For a single file it is the first half of what `sha256sum` prints.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// The first 64 bits, for messages with a short field.
    #[must_use]
    pub const fn short(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The digest of the concatenated parts.
    #[must_use]
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>) -> Self {
        let mut hasher = digest::Context::new(&digest::SHA256);
        parts.into_iter().for_each(|part| hasher.update(part));
        let mut half = [0; 16];
        let bytes = hasher.finish();
        half.iter_mut()
            .zip(bytes.as_ref())
            .for_each(|(to, from)| *to = *from);
        Self(half)
    }
}

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The file has not changed.
    Unchanged,
    /// The file has changed and is in effect as this generation.
    Reloaded(u64),
    /// The file is invalid; the current rules stay.
    Rejected,
    /// The file has changed, and may still be written to.
    Settling,
}

/// When changed files are loaded.
#[derive(Clone, Copy)]
enum LoadWhen {
    Changed,
    Settled(Nanos),
    Always,
}

/// A [`Reloader`] of any kind of rules.
pub trait ReloadHandle: Send + Sync {
    /// Reads the files, and loads them if they have changed and are valid.
    fn reload_if_changed(&self) -> ReloadOutcome;

    /// Reads the files, and loads them if they have changed, have been the same for the settle time, and are valid. Call it again
    /// after the settle time.
    fn reload_if_settled(&self, settle: Duration) -> ReloadOutcome;

    /// Loads the files as they are even if they have not changed: it retries a rejected version, and replaces rules that were set
    /// by other means.
    fn reload_now(&self) -> ReloadOutcome;

    /// The reload status.
    fn status(&self) -> ReloadStatus;

    /// The path of the file or directory.
    fn path(&self) -> &Path;
}

/// Keeps an engine's rules in sync with files.
pub struct Reloader<E> {
    engine: E,
    path: PathBuf,
    secret: [u8; 16],
    worker: FileWorker,
    /// Locked during a reload, so that an older version never replaces a newer one.
    turn: Mutex<()>,
    /// Never locked while files are read or compiled.
    status: Mutex<FileStatus>,
}

impl<E: Reloadable> Reloader<E> {
    /// Loads the files at a path, builds an engine by `make`, and keeps its rules in sync with the files. The secret keys all
    /// digests; a fleet shares one.
    ///
    /// # Errors
    /// All problems of the files: the first load must succeed.
    pub fn open(
        path: &Path,
        secret: [u8; 16],
        options: &E::Options,
        make: impl FnOnce(E::Rules) -> Result<E, LimitIdsExhausted>,
    ) -> Result<Self, Vec<Diagnostics>> {
        let worker = FileWorker::new("read");
        let sources = read_on(&worker, path, E::read)?;
        let (files, hash) = (sources.len(), E::fingerprint(&sources));
        let rules = E::compile(sources, path, secret, options)?;
        let engine =
            make(rules).map_err(|error| vec![whole_file_problem(path, &error.to_string())])?;
        let status = FileStatus::new("policy", engine.generation(), engine.now(), hash);
        tracing::info!(path = %path.display(), files, %hash, "policy loaded");
        Ok(Self {
            engine,
            path: path.to_owned(),
            secret,
            worker,
            turn: Mutex::new(()),
            status: Mutex::new(status),
        })
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// See [`ReloadHandle::reload_if_changed`].
    pub fn reload_if_changed(&self) -> ReloadOutcome {
        self.reload(LoadWhen::Changed)
    }

    /// See [`ReloadHandle::reload_if_settled`].
    pub fn reload_if_settled(&self, settle: Duration) -> ReloadOutcome {
        let settle = u64::try_from(settle.as_nanos()).unwrap_or(u64::MAX);
        self.reload(LoadWhen::Settled(Nanos::from_nanos(settle)))
    }

    /// See [`ReloadHandle::reload_now`].
    pub fn reload_now(&self) -> ReloadOutcome {
        self.reload(LoadWhen::Always)
    }

    /// See [`ReloadHandle::status`].
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.lock().status.clone()
    }

    /// See [`ReloadHandle::path`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn reload(&self, when: LoadWhen) -> ReloadOutcome {
        // It guards no data, so poison means nothing.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let sources = read_on(&self.worker, &self.path, E::read);
        let hash = sources.as_ref().ok();
        let hash = hash.map(E::fingerprint);
        let is_forced = matches!(when, LoadWhen::Always);
        let (sources, hash) = {
            let mut status = self.lock();
            if let LoadWhen::Settled(settle) = when
                && !status.is_settled(hash, self.engine.now(), settle)
            {
                return ReloadOutcome::Settling;
            }
            match (sources, hash) {
                (Ok(_), Some(hash)) if !status.record_read(&self.path, hash, is_forced) => {
                    return ReloadOutcome::Unchanged;
                }
                (Ok(sources), Some(hash)) => (sources, hash),
                (sources, _) => {
                    let problems = sources.err().unwrap_or_default();
                    let is_new = status.record_unreadable(is_forced, &problems);
                    return status.reject(&self.path, problems, is_new);
                }
            }
        };
        let before = self.engine.limit_names();
        let compiled = E::compile(sources, &self.path, self.secret, self.engine.options());
        let swapped = compiled.and_then(|rules| {
            let swapped = self.engine.swap(rules);
            swapped.map_err(|error| vec![whole_file_problem(&self.path, &error.to_string())])
        });
        let mut status = self.lock();
        match swapped {
            Ok(generation) => {
                status.record_loaded(&self.path, generation, self.engine.now(), hash);
                warn_if_most_are_gone(&self.path, &before, &self.engine.limit_names());
                ReloadOutcome::Reloaded(generation)
            }
            Err(problems) => {
                status.record_invalid();
                status.reject(&self.path, problems, true)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FileStatus> {
        // It is written after all other steps, so a poisoned status is still consistent.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reads files on the worker's thread.
fn read_on(
    worker: &FileWorker,
    path: &Path,
    read: fn(&Path) -> Result<Sources, Vec<Diagnostics>>,
) -> Result<Sources, Vec<Diagnostics>> {
    let read_path = path.to_owned();
    let read = worker.run(move || read(&read_path));
    read.unwrap_or_else(|error| Err(vec![whole_file_problem(path, &error.to_string())]))
}

/// Warns about a reload after which most limits are gone: the file may be cut off, or another one.
fn warn_if_most_are_gone(path: &Path, before: &[Box<str>], after: &[Box<str>]) {
    let after: HashSet<&str> = after.iter().map(|name| &**name).collect();
    let before: Vec<&str> = before.iter().map(|name| &**name).collect();
    let removed = before.iter().filter(|name| !after.contains(*name)).count();
    if removed.saturating_mul(2) > before.len() {
        tracing::warn!(
            path = %path.display(),
            removed,
            before = before.len(),
            after = after.len(),
            "policy reload removed most limits"
        );
    }
}

/// A problem of a whole file or directory, without a line.
#[must_use]
pub fn whole_file_problem(path: &Path, why: &str) -> Diagnostics {
    let problem = Diagnostic::without_help(SourceLocation::START, why);
    Diagnostics::new(&path.display().to_string(), "", vec![problem])
}

impl<E: Reloadable> ReloadHandle for Reloader<E> {
    fn reload_if_changed(&self) -> ReloadOutcome {
        Self::reload_if_changed(self)
    }

    fn reload_if_settled(&self, settle: Duration) -> ReloadOutcome {
        Self::reload_if_settled(self, settle)
    }

    fn reload_now(&self) -> ReloadOutcome {
        Self::reload_now(self)
    }

    fn status(&self) -> ReloadStatus {
        Self::status(self)
    }

    fn path(&self) -> &Path {
        Self::path(self)
    }
}

impl<E> fmt::Debug for Reloader<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
