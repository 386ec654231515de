//! Watches directories for changes by the operating system's events, on a thread of its own.
//!
//! It watches directories, because files are replaced more often than written: editors rename files, and Kubernetes swaps a
//! symbolic link beside the file. Must not know: what files contain.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};
use tollgate_core::Timestamp;
use tollgate_store::{Clock as _, SystemClock};

use super::{ChangeEvents, ReloadHandle, ReloadOutcome, WatchEvent, WatchTiming, run_debounced};

/// How long a watcher waits for its thread when it is dropped. The thread may wait for a file system that does not answer, and the
/// process must end all the same.
const END_TIMEOUT: Duration = Duration::from_millis(200);

/// A thread that calls back when files change: those of a [`ReloadHandle`], or others. It ends when this is dropped.
#[derive(Debug)]
pub struct FileWatcher {
    is_stopped: Arc<AtomicBool>,
    wake: SyncSender<()>,
    /// Closed when the thread has ended.
    ended: Receiver<()>,
    /// Dropping it stops the events.
    watcher: Option<RecommendedWatcher>,
}

/// Events of the operating system. At most one is queued.
struct FileEvents {
    receiver: Receiver<()>,
    is_stopped: Arc<AtomicBool>,
    clock: SystemClock,
}

impl ChangeEvents for FileEvents {
    fn next(&mut self, timeout: Duration) -> WatchEvent {
        let received = self.receiver.recv_timeout(timeout);
        if self.is_stopped.load(Ordering::Acquire) {
            return WatchEvent::Closed;
        }
        match received {
            Ok(()) => WatchEvent::Changed,
            Err(RecvTimeoutError::Timeout) => WatchEvent::TimedOut,
            Err(RecvTimeoutError::Disconnected) => WatchEvent::Closed,
        }
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }
}

impl FileWatcher {
    /// Starts watching the files of a reloader. `on_reload` gets the result of each reload. If the operating system reports no
    /// changes, the files are only polled, and a warning is logged.
    ///
    /// # Errors
    /// The thread cannot be spawned.
    pub fn start<R: ReloadHandle + ?Sized + 'static>(
        reloader: Arc<R>,
        timing: WatchTiming,
        on_reload: impl Fn(ReloadOutcome) + Send + 'static,
    ) -> std::io::Result<Self> {
        let path = reloader.path().to_owned();
        Self::watch_paths([&*path], timing, move || {
            let outcome = reloader.reload_if_settled(timing.settle);
            on_reload(outcome);
            outcome == ReloadOutcome::Settling
        })
    }

    /// Calls `look` when any of the files may have changed, and once at the start. It returns whether a change has yet to settle,
    /// and is then called again soon. The files or their directories must exist.
    ///
    /// # Errors
    /// The thread cannot be spawned.
    pub fn watch_paths<'a>(
        paths: impl IntoIterator<Item = &'a Path>,
        timing: WatchTiming,
        look: impl FnMut() -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        let (wake, receiver) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = create_watcher(paths, &wake);
        if let Err(error) = &watcher {
            tracing::warn!(%error, "file watching unavailable, polling instead");
        }
        let mut events = FileEvents {
            receiver,
            is_stopped: Arc::clone(&is_over),
            clock: SystemClock::new(),
        };
        let (has_ended, ended) = sync_channel(1);
        thread::Builder::new()
            .name("tollgate-reload".to_owned())
            .spawn(move || {
                // It begins with a look: files may have changed between the first load and the start of the watcher.
                run_debounced(&mut events, timing, look);
                drop(has_ended);
            })?;
        Ok(Self {
            is_stopped: is_over,
            wake,
            ended,
            watcher: watcher.ok(),
        })
    }

    /// Whether the operating system reports changes; otherwise the files are only polled.
    #[must_use]
    pub const fn is_notified(&self) -> bool {
        self.watcher.is_some()
    }
}

impl Drop for FileWatcher {
    fn drop(&mut self) {
        self.watcher = None;
        self.is_stopped.store(true, Ordering::Release);
        // If the queue is full, the thread is about to wake up anyway.
        let _sent_or_full = self.wake.try_send(());
        // Nothing is ever sent: it waits until the thread has ended, or does not answer.
        self.ended.recv_timeout(END_TIMEOUT).ok();
    }
}

fn create_watcher<'a>(
    paths: impl IntoIterator<Item = &'a Path>,
    wake: &SyncSender<()>,
) -> notify::Result<RecommendedWatcher> {
    let wake = wake.clone();
    let on_event = move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            // One queued event is enough for all that follow.
            let _sent_or_full = wake.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(on_event)?;
    // A directory is watched recursively, a file by its parent directory.
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

/// The parent directory of a file.
fn directory(path: &Path) -> &Path {
    let parent = path.parent();
    let parent = parent.filter(|parent| !parent.as_os_str().is_empty());
    parent.unwrap_or(Path::new("."))
}

/// Whether an event is a change. Reading a file is an event too and would otherwise cause endless reloads.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
