//! TLS for listeners: a certificate, its key, and optionally the certificate authorities of clients.
//!
//! The files are reloaded when they change. Each load builds one `ServerConfig` per protocol and swaps all of them at once: a
//! handshake uses the old files or the new ones, never both, and old sessions are not resumed under new files. If the new files
//! are invalid, the old configuration stays. Must not know: sockets, how files are watched, protocols beyond their ALPN ids.

mod files;
mod invalid_tls;
mod server_config;
mod validity;

pub use files::TlsFiles;
pub(crate) use files::{load_certificates, load_private_key};
pub use invalid_tls::InvalidTls;
pub use server_config::{ApplicationProtocol, ListenerTls};

use std::fmt;
use std::hash::{BuildHasher as _, RandomState};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use tollgate_core::{Nanos, Timestamp};
use tollgate_files::FileWorker;

use crate::listen::counters::increment;
use files::TlsFileContents;
use server_config::ServerConfigs;
use validity::format_utc;

/// The log warns about the expiry of the certificate from this long before it, once a day.
const EXPIRY_WARNING: Nanos = Nanos::from_secs(14 * 24 * 3_600);
const DAY: Nanos = Nanos::from_secs(24 * 3_600);

/// The TLS configuration of the listeners, reloaded from its files.
pub struct ServerTls {
    files: TlsFiles,
    current: ArcSwap<LoadedTls>,
    /// Locked during a reload, so that an older reload never replaces a newer one.
    state: Mutex<ReloadState>,
    hasher: RandomState,
    worker: FileWorker,
    loads: AtomicU64,
    refusals: AtomicU64,
}

/// The configuration that is in use.
struct LoadedTls {
    configs: ServerConfigs,
    expires: Timestamp,
}

struct ReloadState {
    /// Hash of the files when they were last read; `None` if that failed.
    last_read: Option<u64>,
    loaded: u64,
    /// What the last read found, if it has yet to settle, and since when it is so.
    unsettled: Option<(Option<u64>, Timestamp)>,
    /// Whether the files on disk are the ones in use.
    is_current: bool,
    warned_at: Option<Timestamp>,
}

/// The result of a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlsReload {
    /// The files have not changed.
    Unchanged,
    /// The files have changed. New connections use them.
    Reloaded,
    /// The files are invalid. The previous configuration stays in use.
    Rejected,
    /// The files have changed, and may still be written to.
    Settling,
}

impl ServerTls {
    /// Loads the files. `now` is the time that certificates are checked against.
    ///
    /// The file and what is wrong with it: missing, not PEM, expired, or a key of another certificate.
    pub fn open(files: TlsFiles, now: Timestamp) -> Result<Self, InvalidTls> {
        let hasher = RandomState::new();
        let worker = FileWorker::new("read");
        let contents = files.read_on(&worker)?;
        let hash = hasher.hash_one(&contents);
        let current = LoadedTls::load(&files, &contents, now)?;
        let tls = Self {
            files,
            current: ArcSwap::from_pointee(current),
            state: Mutex::new(ReloadState {
                last_read: Some(hash),
                loaded: hash,
                is_current: true,
                unsettled: None,
                warned_at: None,
            }),
            hasher,
            worker,
            loads: AtomicU64::new(1),
            refusals: AtomicU64::new(0),
        };
        tls.log_loaded();
        tls.warn(&mut tls.lock_state(), now);
        Ok(tls)
    }

    /// Reads the files and uses them if they have changed and are valid.
    pub fn reload_if_changed(&self, now: Timestamp) -> TlsReload {
        self.reload_if_settled(now, Nanos::ZERO)
    }

    /// Reads the files and uses them if they have changed, have been the same for the settle time, and are valid. A certificate
    /// and its key are two files, which nobody replaces at the same moment.
    pub fn reload_if_settled(&self, now: Timestamp, settle: Nanos) -> TlsReload {
        let mut state = self.lock_state();
        let contents = self.files.read_on(&self.worker);
        let read = contents.as_ref().ok();
        let read = read.map(|contents| self.hasher.hash_one(contents));
        let outcome = if state.is_settled(read, now, settle) {
            self.reload(&mut state, contents, now)
        } else {
            TlsReload::Settling
        };
        self.warn(&mut state, now);
        outcome
    }

    /// The TLS settings of a listener for this protocol.
    #[must_use]
    pub fn for_protocol(self: &Arc<Self>, spoken: ApplicationProtocol) -> ListenerTls {
        ListenerTls::new(Arc::clone(self), spoken)
    }

    /// When the certificate in use expires, in seconds since 1970.
    #[must_use]
    pub fn expires(&self) -> u64 {
        self.current.load().expires.as_nanos() / 1_000_000_000
    }

    /// How often files were loaded, including at the start.
    #[must_use]
    pub fn loads(&self) -> u64 {
        self.loads.load(Ordering::Relaxed)
    }

    /// How often changed files were rejected.
    #[must_use]
    pub fn failed_reloads(&self) -> u64 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// The paths of all files.
    pub fn paths(&self) -> impl Iterator<Item = &Path> {
        self.files.paths()
    }

    fn reload(
        &self,
        state: &mut ReloadState,
        contents: Result<TlsFileContents, InvalidTls>,
        now: Timestamp,
    ) -> TlsReload {
        let contents = match contents {
            Ok(contents) => contents,
            Err(error) => {
                // With no hash, the next readable files count as changed.
                let was_unreadable = state.last_read.take().is_none();
                return self.reject(state, &error, !was_unreadable);
            }
        };
        let hash = self.hasher.hash_one(&contents);
        if state.last_read.replace(hash) == Some(hash) {
            return TlsReload::Unchanged;
        }
        if hash == state.loaded {
            // The files on disk are again the ones in use.
            state.is_current = true;
            return TlsReload::Unchanged;
        }
        match LoadedTls::load(&self.files, &contents, now) {
            Ok(current) => {
                self.current.store(Arc::new(current));
                state.loaded = hash;
                state.is_current = true;
                state.warned_at = None;
                increment(&self.loads);
                self.log_loaded();
                TlsReload::Reloaded
            }
            Err(error) => self.reject(state, &error, true),
        }
    }

    fn reject(&self, state: &mut ReloadState, error: &InvalidTls, is_new: bool) -> TlsReload {
        if is_new {
            state.is_current = false;
            increment(&self.refusals);
            tracing::error!(%error, "TLS files refused, previous certificate stays in use");
        }
        TlsReload::Rejected
    }

    fn log_loaded(&self) {
        let certificate = self.files.certificate.display();
        let expires = format_utc(self.current.load().expires);
        tracing::info!(%certificate, %expires, "TLS certificate loaded");
    }

    /// Logs that the certificate expires soon or has expired, at most once a day.
    fn warn(&self, state: &mut ReloadState, now: Timestamp) {
        let expires = self.current.load().expires;
        if expires.since(now) > EXPIRY_WARNING
            || state
                .warned_at
                .is_some_and(|last_read| now.since(last_read) < DAY)
        {
            return;
        }
        state.warned_at = Some(now);
        let certificate = self.files.certificate.display();
        let until = format_utc(expires);
        if expires <= now {
            tracing::error!(%certificate, expired = %until, "TLS certificate expired");
        } else {
            tracing::warn!(%certificate, expires = %until, "TLS certificate expires soon");
        }
    }

    fn lock_state(&self) -> MutexGuard<'_, ReloadState> {
        // A poisoned lock is safe to use: the state is written last.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ReloadState {
    /// Whether what was read, `None` if nothing could be, is known or has been the same for the settle time.
    fn is_settled(&mut self, read: Option<u64>, now: Timestamp, settle: Nanos) -> bool {
        if read == self.last_read {
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
}

impl LoadedTls {
    fn load(
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
    /// Keys are not shown.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("files", &self.files)
            .field("expires", &self.expires())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
