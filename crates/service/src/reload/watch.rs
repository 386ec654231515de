//! The operating system's word that a directory has changed, and a thread that listens to it.
//!
//! It is the directory that is watched, because files are replaced more often than written: editors rename, and Kubernetes
//! swaps a link beside the file. Must not know: what is in the file.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::{ChangeEvents, ReloadHandle, ReloadOutcome, WatchEvent, WatchTiming, run_debounced};

/// A thread that looks at files when they change: those of a [`Reload`], or others. It ends when this is dropped.
#[derive(Debug)]
pub struct FileWatcher {
    is_stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
    /// Events come for as long as this is there.
    watcher: Option<RecommendedWatcher>,
}

/// Events of the operating system, one of which may wait.
struct FileEvents {
    receiver: Receiver<()>,
    is_stopped: Arc<AtomicBool>,
}

impl ChangeEvents for FileEvents {
    fn next(&mut self, patience: Duration) -> WatchEvent {
        let heard = self.receiver.recv_timeout(patience);
        if self.is_stopped.load(Ordering::Acquire) {
            return WatchEvent::Closed;
        }
        match heard {
            Ok(()) => WatchEvent::Changed,
            Err(RecvTimeoutError::Timeout) => WatchEvent::TimedOut,
            Err(RecvTimeoutError::Disconnected) => WatchEvent::Closed,
        }
    }
}

impl FileWatcher {
    /// Begins to watch. `told` hears what came of every look. Where the operating system does not tell of changes, the
    /// file is only polled, and the log says so.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start<R: ReloadHandle + ?Sized + 'static>(
        reloader: Arc<R>,
        timing: WatchTiming,
        told: impl Fn(ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let path = reloader.path().to_owned();
        Self::watch_paths([&*path], timing, move || told(reloader.reload_if_changed()))
    }

    /// Has any files looked at when they may have changed, and once at the beginning. They must already be there, or their
    /// directories.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn watch_paths<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
        timing: WatchTiming,
        mut look: impl FnMut() + Send + 'static,
    ) -> std::io::Result<Self> {
        let (wake, receiver) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = create_watcher(paths, &wake);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "changes of files are not told; they are polled");
        }
        let mut heard = FileEvents {
            receiver,
            is_stopped: Arc::clone(&is_over),
        };
        let thread = thread::Builder::new()
            .name("tollgate-reload".to_owned())
            .spawn(move || {
                // They may have changed since they were opened and before they were watched.
                look();
                run_debounced(&mut heard, timing, look);
            })?;
        Ok(Self {
            is_stopped: is_over,
            wake,
            thread: Some(thread),
            watcher: watcher.ok(),
        })
    }

    /// Whether the operating system tells of changes; otherwise the file is only polled.
    #[must_use]
    pub const fn is_notified(&self) -> bool {
        self.watcher.is_some()
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.watcher = None;
        self.is_stopped.store(true, Ordering::Release);
        // If there is no room, the thread is about to wake up anyway.
        let _sent_or_full = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            drop(thread.join());
        }
    }
}

fn create_watcher<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    wake: &SyncSender<()>,
) -> notify::Result<RecommendedWatcher> {
    let wake = wake.clone();
    let heard = move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            // One that waits stands for all that follow.
            let _sent_or_full = wake.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(heard)?;
    // A directory is watched with all that is in it, a file by the directory it lies in.
    let directories: BTreeSet<(&Path, bool)> = paths
        .into_iter()
        .map(|path| match path.is_dir() {
            true => (path, true),
            false => (directory(path), false),
        })
        .collect();
    for (directory, is_whole) in directories {
        let depth = if is_whole {
            RecursiveMode::Recursive
        } else {
            RecursiveMode::NonRecursive
        };
        watcher.watch(directory, depth)?;
    }
    Ok(watcher)
}

/// Where a file lies.
fn directory(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Reading the file is an event too; if that counted, looking at it would be a reason to look at it.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
