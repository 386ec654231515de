//! A policy file that is put in force again whenever it changes, and never when it is wrong.
//!
//! [`Reloader`] reads the file, checks it, compiles it and swaps it in; if any of that fails the policy in force stays, and
//! the [`Status`] says what is wrong with the file. [`Watch`] tells it when to look: the operating system says that the
//! directory has changed, a poll stands behind that, and [`Reloader::reload_now`] is for signals and people.
//! [`EnvoyReloader`] does the same with files of envoyproxy/ratelimit. This is the one module of the engine that knows files. Must not know: requests, signals, what a policy says.

mod files;
mod follow;
mod seen;
#[cfg(test)]
mod tests;
mod watch;

pub use files::{EnvoyReloader, is_envoys};
pub use follow::{Events, Next, Timing, follow};
pub use watch::Watch;

use std::fmt;
use std::hash::Hasher as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use siphasher::sip128::{Hasher128 as _, SipHasher24};
use tollgate_core::Timestamp;
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::{Place, Problem, Problems};
use tollgate_policy::{load_bytes, read_path};

use tollgate_engine::{Engine, StateStore};

use self::seen::Seen;

/// What is known of a file and of what is in force.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Status {
    /// Whether what the file says now is in force. If not, an earlier version of it is.
    pub valid: bool,
    /// The generation in force that this file has made.
    pub generation: u64,
    /// When it was put in force.
    pub loaded_at: Timestamp,
    /// The fingerprint of what is in force.
    pub hash: Fingerprint,
    /// What is wrong with the file as it is now.
    pub error: Option<Problems>,
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

    fn of(bytes: &[u8], secret: [u8; 16]) -> Self {
        let mut hasher = SipHasher24::new_with_key(&secret);
        hasher.write(bytes);
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
pub enum Looked {
    /// It says what it said before.
    Same,
    /// It says something else, which is in force now as this generation.
    Swapped(u64),
    /// It is wrong; what was in force still is.
    Refused,
}

/// What keeps an engine at what files say.
pub trait Reload: Send + Sync {
    /// Looks at the files, and puts them in force if they have changed and are right.
    fn look(&self) -> Looked;

    /// The same even if they have not changed: what was refused is tried again, and what somebody has put in force by other
    /// means is replaced.
    fn reload_now(&self) -> Looked;

    /// What is known of the files.
    fn status(&self) -> Status;

    /// The file, or the directory of files.
    fn path(&self) -> &Path;
}

/// Keeps an engine at what a file says.
pub struct Reloader<S> {
    engine: Arc<Engine<S>>,
    path: PathBuf,
    secret: [u8; 16],
    /// Held while the file is looked at, so that an older version of it never replaces a newer one.
    known: Mutex<Known>,
}

/// What is known of the file, and what it said when it was put in force.
struct Known {
    seen: Seen,
    policy: Arc<Policy>,
}

impl<S: StateStore> Reloader<S> {
    /// An engine that decides by a file. The secret keys every digest; a fleet shares one.
    ///
    /// # Errors
    /// Everything that is wrong with the file: there must be a policy to begin with.
    pub fn open(path: &Path, secret: [u8; 16], store: S) -> Result<Self, Problems> {
        let bytes = read_path(path)?;
        let hash = Fingerprint::of(&bytes, secret);
        let (policy, rules) = compile(bytes, path, secret)?;
        let engine = Engine::new(rules, store).map_err(|error| whole(path, &error))?;
        let generation = engine.generation().number();
        let seen = Seen::first(generation, engine.store().now(), hash);
        tracing::info!(path = %path.display(), %hash, "policy loaded");
        Ok(Self {
            engine: Arc::new(engine),
            path: path.to_owned(),
            secret,
            known: Mutex::new(Known {
                seen,
                policy: Arc::new(policy),
            }),
        })
    }

    /// Looks at the file, and puts it in force if it has changed and is right.
    pub fn look(&self) -> Looked {
        self.look_at(false)
    }

    /// The same even if it has not changed: what was refused is tried again, and what somebody has put in force by other
    /// means is replaced.
    pub fn reload_now(&self) -> Looked {
        self.look_at(true)
    }

    /// What is known of the file.
    #[must_use]
    pub fn status(&self) -> Status {
        self.known().seen.status.clone()
    }

    /// What the file said when it was put in force, and as which generation.
    #[must_use]
    pub fn in_force(&self) -> (u64, Arc<Policy>) {
        let known = self.known();
        (known.seen.status.generation, Arc::clone(&known.policy))
    }

    /// The engine.
    #[must_use]
    pub const fn engine(&self) -> &Arc<Engine<S>> {
        &self.engine
    }

    /// The file.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn look_at(&self, always: bool) -> Looked {
        let mut known = self.known();
        let Known { seen, policy } = &mut *known;
        let bytes = match read_path(&self.path) {
            Ok(bytes) => bytes,
            Err(problems) => {
                seen.unreadable(always);
                return self.refuse(seen, problems);
            }
        };
        let hash = Fingerprint::of(&bytes, self.secret);
        if !seen.read(&self.path, hash, always) {
            return Looked::Same;
        }
        let replaced = compile(bytes, &self.path, self.secret).and_then(|(policy, rules)| {
            let replaced = self.engine.replace(rules);
            let generation = replaced.map_err(|error| whole(&self.path, &error))?;
            Ok((policy, generation))
        });
        match replaced {
            Ok((new, generation)) => {
                *policy = Arc::new(new);
                seen.loaded(&self.path, generation, self.engine.store().now(), hash);
                Looked::Swapped(generation)
            }
            Err(problems) => {
                seen.wrong();
                self.refuse(seen, problems)
            }
        }
    }

    fn refuse(&self, seen: &mut Seen, problems: Problems) -> Looked {
        let all = problems.to_string();
        seen.refuse(&self.path, &all, Some(problems))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        // It is written after everything else was done.
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the text of a file says, and the rules that it makes.
fn compile(bytes: Vec<u8>, path: &Path, secret: [u8; 16]) -> Result<(Policy, Rules), Problems> {
    let text = String::from_utf8_lossy(&bytes).into_owned();
    let policy = load_bytes(bytes, path)?;
    let rules = Rules::compile(&policy, secret)
        .map_err(|list| Problems::new(&path.display().to_string(), &text, list))?;
    Ok((policy, rules))
}

/// A problem of the file as a whole.
fn whole(path: &Path, why: &dyn std::error::Error) -> Problems {
    let problem = Problem::bare(Place::START, why.to_string());
    Problems::new(&path.display().to_string(), "", vec![problem])
}

impl<S: StateStore> Reload for Reloader<S> {
    fn look(&self) -> Looked {
        Self::look(self)
    }

    fn reload_now(&self) -> Looked {
        Self::reload_now(self)
    }

    fn status(&self) -> Status {
        Self::status(self)
    }

    fn path(&self) -> &Path {
        Self::path(self)
    }
}

impl<S> fmt::Debug for Reloader<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reloader")
            .field("path", &self.path)
            .finish_non_exhaustive()
    }
}
