//! Rules that come from files: loaded again whenever the files change, and never when they are wrong.
//!
//! [`Reloader`] reads the files, compiles them and swaps them in; if any of that fails the rules in force stay, and the
//! [`Status`] says what is wrong with the files. [`Reloadable`] says how for one kind of rules: [`PolicyEngine`] for policy
//! files. [`Watch`] tells it when to look: the operating system says that the directory has changed, a poll stands behind
//! that, and [`Reloader::reload_now`] is for signals and people. Must not know: requests, signals, what files say.

mod debounce;
mod file_status;
mod policy;
#[cfg(test)]
mod tests;
mod watch;

pub use debounce::{ChangeEvents, WatchEvent, WatchTiming, run_debounced};
pub use policy::{PolicyEngine, PolicyReloader};
pub use watch::FileWatcher;

use std::fmt;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_core::Timestamp;
use tollgate_engine::LimitIdsExhausted;
use tollgate_policy::source::{Diagnostic, Diagnostics, SourceLocation};

use self::file_status::FileStatus;

/// Files as they were read: names and bytes, in order.
pub type Sources = Vec<(PathBuf, Vec<u8>)>;

/// An engine whose rules come from files.
pub trait Reloadable: Send + Sync {
    /// What files compile to.
    type Rules;

    /// Reads the file or the files at a path.
    ///
    /// # Errors
    /// The problems of each file that cannot be read.
    fn read(path: &Path) -> Result<Sources, Vec<Diagnostics>>;

    /// A digest of what was read: the same on all nodes that share a secret and have the same files.
    fn fingerprint(sources: &Sources, secret: [u8; 16]) -> Fingerprint;

    /// Compiles what was read.
    ///
    /// # Errors
    /// The problems of each file that is wrong.
    fn compile(
        sources: Sources,
        path: &Path,
        secret: [u8; 16],
    ) -> Result<Self::Rules, Vec<Diagnostics>>;

    /// Puts other rules in force. Returns the number of the new generation.
    ///
    /// # Errors
    /// There are no numbers left for new states. Then nothing changes.
    fn swap(&self, rules: Self::Rules) -> Result<u64, LimitIdsExhausted>;

    /// The generation in force.
    fn generation(&self) -> u64;

    /// The time by which the engine decides.
    fn now(&self) -> Timestamp;
}

/// What is known of a file and of what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReloadStatus {
    /// Whether what the file says now is in force. If not, an earlier version of it is.
    pub valid: bool,
    /// The generation in force that this file has made.
    pub generation: u64,
    /// When it was put in force.
    pub loaded_at: Timestamp,
    /// The fingerprint of what is in force.
    pub hash: Fingerprint,
    /// What is wrong with the file as it is now.
    pub error: Option<Diagnostics>,
    /// How often a version of the file was put in force, the first included.
    pub loads: u64,
    /// How often a version of the file was refused. A file that stays wrong or missing is refused once.
    pub refusals: u64,
}

/// A keyed digest of a policy's text: the same on all nodes that share a secret and have the same policy in force.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

impl Fingerprint {
    /// The first half, for messages with room for no more.
    #[must_use]
    pub const fn short(self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    /// The digest of these parts, one after the other.
    #[must_use]
    pub fn from_parts<'a>(parts: impl IntoIterator<Item = &'a [u8]>, secret: [u8; 16]) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret);
        parts.into_iter().for_each(|part| hasher.write(part));
        Self(hasher.finish128().as_bytes())
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

/// What came of looking at the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// It says what it said before.
    Unchanged,
    /// It says something else, which is in force now as this generation.
    Reloaded(u64),
    /// It is wrong; what was in force still is.
    Rejected,
}

/// A [`Reloader`] of any rules.
pub trait ReloadHandle: Send + Sync {
    /// Looks at the files, and puts them in force if they have changed and are right.
    fn reload_if_changed(&self) -> ReloadOutcome;

    /// The same even if they have not changed: what was refused is tried again, and what somebody has put in force by other
    /// means is replaced.
    fn reload_now(&self) -> ReloadOutcome;

    /// What is known of the files.
    fn status(&self) -> ReloadStatus;

    /// The file, or the directory of files.
    fn path(&self) -> &Path;
}

/// Keeps an engine at what files say.
pub struct Reloader<E> {
    engine: E,
    path: PathBuf,
    secret: [u8; 16],
    /// Held while the files are looked at, so that an older version of them never replaces a newer one.
    status: Mutex<FileStatus>,
}

impl<E: Reloadable> Reloader<E> {
    /// Loads the files at a path, makes an engine of them by `make`, and keeps it at what they say. The secret keys every
    /// digest; a fleet shares one.
    ///
    /// # Errors
    /// Everything that is wrong with the files: there must be rules to begin with.
    pub fn open(
        path: &Path,
        secret: [u8; 16],
        make: impl FnOnce(E::Rules) -> Result<E, LimitIdsExhausted>,
    ) -> Result<Self, Vec<Diagnostics>> {
        let sources = E::read(path)?;
        let (files, hash) = (sources.len(), E::fingerprint(&sources, secret));
        let rules = E::compile(sources, path, secret)?;
        let engine =
            make(rules).map_err(|error| vec![whole_file_problem(path, &error.to_string())])?;
        let status = FileStatus::new(engine.generation(), engine.now(), hash);
        tracing::info!(path = %path.display(), files, %hash, "policy loaded");
        Ok(Self {
            engine,
            path: path.to_owned(),
            secret,
            status: Mutex::new(status),
        })
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &E {
        &self.engine
    }

    /// See [`Reload::look`].
    pub fn reload_if_changed(&self) -> ReloadOutcome {
        self.reload(false)
    }

    /// See [`Reload::reload_now`].
    pub fn reload_now(&self) -> ReloadOutcome {
        self.reload(true)
    }

    /// See [`Reload::status`].
    #[must_use]
    pub fn status(&self) -> ReloadStatus {
        self.lock().status.clone()
    }

    /// See [`Reload::path`].
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn reload(&self, always: bool) -> ReloadOutcome {
        let mut status = self.lock();
        let sources = match E::read(&self.path) {
            Ok(sources) => sources,
            Err(problems) => {
                status.record_unreadable(always);
                return status.reject(&self.path, problems);
            }
        };
        let hash = E::fingerprint(&sources, self.secret);
        if !status.record_read(&self.path, hash, always) {
            return ReloadOutcome::Unchanged;
        }
        let compiled = E::compile(sources, &self.path, self.secret);
        let swapped = compiled.and_then(|rules| {
            let swapped = self.engine.swap(rules);
            swapped.map_err(|error| vec![whole_file_problem(&self.path, &error.to_string())])
        });
        match swapped {
            Ok(generation) => {
                status.record_loaded(&self.path, generation, self.engine.now(), hash);
                ReloadOutcome::Reloaded(generation)
            }
            Err(problems) => {
                status.record_invalid();
                status.reject(&self.path, problems)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, FileStatus> {
        // It is written after everything else was done.
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A problem of a file or a directory as a whole.
#[must_use]
pub fn whole_file_problem(path: &Path, why: &str) -> Diagnostics {
    let problem = Diagnostic::without_help(SourceLocation::START, why);
    Diagnostics::new(&path.display().to_string(), "", vec![problem])
}

impl<E: Reloadable> ReloadHandle for Reloader<E> {
    fn reload_if_changed(&self) -> ReloadOutcome {
        Self::reload_if_changed(self)
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
