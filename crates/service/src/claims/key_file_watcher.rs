//! Watches the file with the keys of tokens that the current policy names, also one that a later policy introduces.
//!
//! Must not know: what the file contains, when policies change.

use std::fmt;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use tollgate_store::Clock;

use crate::reload::{FileWatcher, ReloadOutcome, WatchTiming};
use crate::service::RateLimitService;

/// Watches the `keys_file` of a service's policy. Call [`follow_policy`](Self::follow_policy) at the start and whenever the
/// policy may have changed. Watching ends when this is dropped.
pub struct KeyFileWatcher<C> {
    service: Arc<RateLimitService<C>>,
    timing: WatchTiming,
    watched: Mutex<Option<(PathBuf, FileWatcher)>>,
}

impl<C: Clock + 'static> KeyFileWatcher<C> {
    /// A watcher that does not watch yet.
    #[must_use]
    pub const fn new(service: Arc<RateLimitService<C>>, timing: WatchTiming) -> Self {
        Self {
            service,
            timing,
            watched: Mutex::new(None),
        }
    }

    /// Watches the file that the policy names now, and no other.
    ///
    /// # Errors
    /// The thread cannot be spawned.
    pub fn follow_policy(&self) -> io::Result<()> {
        let mut watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        let current = self.service.claims().keys_file();
        if watched.as_ref().map(|(path, _)| path) == current.as_ref() {
            return Ok(());
        }
        // The old watcher ends first, so that two never reload at the same time.
        *watched = None;
        if let Some(path) = current {
            let watcher = FileWatcher::watch_paths([&*path], self.timing, self.look())?;
            *watched = Some((path, watcher));
        }
        Ok(())
    }

    /// The same after a reload: an error is logged, and the next reload tries again.
    pub fn follow_policy_or_log(&self) {
        if let Err(error) = self.follow_policy() {
            tracing::error!(%error, "cannot watch the keys file");
        }
    }

    /// The path that is watched.
    #[must_use]
    pub fn watched_path(&self) -> Option<PathBuf> {
        let watched = self.watched.lock().unwrap_or_else(PoisonError::into_inner);
        watched.as_ref().map(|(path, _)| path.clone())
    }

    fn look(&self) -> impl FnMut() -> bool + Send + 'static {
        let (service, settle) = (Arc::clone(&self.service), self.timing.settle);
        move || {
            let outcome = service.claims().reload_keys(settle, service.now());
            outcome == Some(ReloadOutcome::Settling)
        }
    }
}

impl<C> fmt::Debug for KeyFileWatcher<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyFileWatcher").finish_non_exhaustive()
    }
}
