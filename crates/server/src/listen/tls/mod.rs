//! TLS for listeners: a certificate and its key in files, and the authority of clients' certificates where they need one.
//!
//! The files are read again whenever they change. What was read becomes one configuration for each protocol, and all of them
//! are swapped at once: a handshake sees the old files or the new ones, never a mixture, and sessions that were begun under
//! the old ones are not resumed under the new. Files that are wrong change nothing. Must not know: sockets, how files are
//! watched, what is spoken on connections beyond its name.

mod files;
mod invalid_tls;
mod server_config;
mod validity;

pub use files::TlsFiles;
pub use invalid_tls::InvalidTls;
pub use server_config::{ApplicationProtocol, ListenerTls};

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::{Nanos, Timestamp};

use crate::listen::counters::increment;
use files::TlsFileContents;
use server_config::ServerConfigs;
use validity::format_utc;

/// From so long before the certificate expires the log says so, once a day.
const NOTICE: Nanos = Nanos::from_secs(14 * 24 * 3_600);
const DAY: Nanos = Nanos::from_secs(24 * 3_600);

/// What listeners prove themselves with, kept at what the files say.
pub struct ServerTls {
    files: TlsFiles,
    current: ArcSwap<Current>,
    /// Held while the files are looked at, so that older ones never replace newer ones.
    seen: Mutex<Seen>,
    hasher: RandomState,
    loads: AtomicU64,
    refusals: AtomicU64,
}

/// What is in force.
struct Current {
    configs: ServerConfigs,
    expires: Timestamp,
}

struct Seen {
    /// What the files were when they were last read; `None` if they could not be.
    last: Option<u64>,
    in_force: u64,
    /// Whether the files as they are now are in force.
    is_right: bool,
    warned: Option<Timestamp>,
}

/// What came of looking at the files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// They are as they were.
    Unchanged,
    /// They have changed, and are in force for the next connection.
    Reloaded,
    /// They are wrong; what was in force still is.
    Rejected,
}

impl ServerTls {
    /// Reads the files at the time `now`.
    ///
    /// # Errors
    /// Which file is wrong, and what is wrong with it: missing, not PEM, expired, a key of another certificate.
    pub fn open(files: TlsFiles, now: Timestamp) -> Result<Self, InvalidTls> {
        let hasher = RandomState::new();
        let contents = files.read()?;
        let hash = hasher.hash_one(&contents);
        let current = Current::make(&files, &contents, now)?;
        let tls = Self {
            files,
            current: ArcSwap::from_pointee(current),
            seen: Mutex::new(Seen {
                last: Some(hash),
                in_force: hash,
                is_right: true,
                warned: None,
            }),
            hasher,
            loads: AtomicU64::new(1),
            refusals: AtomicU64::new(0),
        };
        tls.say_loaded();
        tls.warn(&mut tls.seen(), now);
        Ok(tls)
    }

    /// Looks at the files, and puts them in force if they have changed and are right.
    pub fn reload_if_changed(&self, now: Timestamp) -> TlsReload {
        let mut seen = self.seen();
        let looked = self.look_at(&mut seen, now);
        self.warn(&mut seen, now);
        looked
    }

    /// What a listener needs to speak a protocol under this certificate.
    #[must_use]
    pub fn for_protocol(self: &Arc<Self>, spoken: ApplicationProtocol) -> ListenerTls {
        ListenerTls::new(Arc::clone(self), spoken)
    }

    /// When the certificate in force expires, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.current.load().expires.as_nanos() / 1_000_000_000
    }

    /// How often files were put in force, the first time included.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// How often changed files were refused because they were wrong.
    #[must_use]
    pub fn failed_reloads(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Every file that it is read from.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.paths()
    }

    fn look_at(&self, seen: &mut Seen, now: Timestamp) -> TlsReload {
        let contents = match self.files.read() {
            Ok(contents) => contents,
            Err(error) => {
                // Whatever is there when they can be read again is looked at.
                let was_unreadable = seen.last.take().is_none();
                return self.refuse(seen, &error, !was_unreadable);
            }
        };
        let hash = self.hasher.hash_one(&contents);
        if seen.last.replace(hash) == Some(hash) {
            return TlsReload::Unchanged;
        }
        if hash == seen.in_force {
            // A mistake was taken back.
            seen.is_right = true;
            return TlsReload::Unchanged;
        }
        match Current::make(&self.files, &contents, now) {
            Ok(current) => {
                self.current.store(Arc::new(current));
                seen.in_force = hash;
                seen.is_right = true;
                seen.warned = None;
                increment(&self.loads);
                self.say_loaded();
                TlsReload::Reloaded
            }
            Err(error) => self.refuse(seen, &error, true),
        }
    }

    fn refuse(&self, seen: &mut Seen, error: &InvalidTls, is_news: bool) -> TlsReload {
        if is_news {
            seen.is_right = false;
            increment(&self.refusals);
            tracing::error!(%error, "TLS files refused, the last good ones stay in force");
        }
        TlsReload::Rejected
    }

    fn say_loaded(&self) {
        let certificate = self.files.certificate.display();
        let expires = format_utc(self.current.load().expires);
        tracing::info!(%certificate, %expires, "TLS certificate loaded");
    }

    /// Says that the certificate expires soon or has expired, once a day.
    fn warn(&self, seen: &mut Seen, now: Timestamp) {
        let expires = self.current.load().expires;
        if expires.since(now) > NOTICE || seen.warned.is_some_and(|last| now.since(last) < DAY) {
            return;
        }
        seen.warned = Some(now);
        let certificate = self.files.certificate.display();
        let until = format_utc(expires);
        if expires <= now {
            tracing::error!(%certificate, expired = %until, "the TLS certificate has expired");
        } else {
            tracing::warn!(%certificate, expires = %until, "the TLS certificate expires soon");
        }
    }

    fn seen(&self) -> MutexGuard<'_, Seen> {
        // It is written after everything else was done.
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Current {
    fn make(
        files: &TlsFiles,
        contents: &TlsFileContents,
        now: Timestamp,
    ) -> Result<Self, InvalidTls> {
        let material = files.parse(contents, now)?;
        let expires = material.expires;
        let configs = ServerConfigs::new(material)
            .map_err(|error| InvalidTls::new(&files.certificate, error.to_string()))?;
        Ok(Self { configs, expires })
    }
}

impl fmt::Debug for ServerTls {
    /// No key is shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
