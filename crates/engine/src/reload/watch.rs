//! The operating system's word that a directory has changed, and a thread that listens to it.
//!
//! It is the directory that is watched, because files are replaced more often than written: editors rename, and Kubernetes
//! swaps a link beside the file. Must not know: what is in the file.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use notify::event::{AccessKind, AccessMode};
use notify::{EventKind, RecommendedWatcher, RecursiveMode, Watcher as _};

use super::{Events, Looked, Next, Reload, Timing, follow};

/// A thread that keeps a [`Reload`] up to date. It ends when this is dropped.
#[derive(Debug)]
pub struct Watch {
    is_over: Arc<AtomicBool>,
    wake: SyncSender<()>,
    thread: Option<JoinHandle<()>>,
    /// Events come for as long as this is there.
    watcher: Option<RecommendedWatcher>,
}

/// Events of the operating system, one of which may wait.
struct Heard {
    receiver: Receiver<()>,
    is_over: Arc<AtomicBool>,
}

impl Events for Heard {
    fn next(&mut self, patience: Duration) -> Next {
        let heard = self.receiver.recv_timeout(patience);
        if self.is_over.load(Ordering::Acquire) {
            return Next::Over;
        }
        match heard {
            Ok(()) => Next::Changed,
            Err(RecvTimeoutError::Timeout) => Next::Quiet,
            Err(RecvTimeoutError::Disconnected) => Next::Over,
        }
    }
}

impl Watch {
    /// Begins to watch. `told` hears what came of every look. Where the operating system does not tell of changes, the
    /// file is only polled, and the log says so.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start<R: Reload + ?Sized + 'static>(
        reloader: Arc<R>,
        timing: Timing,
        told: impl Fn(Looked) + Send + 'static,
    ) -> std::io::Result<Self> {
        let (wake, receiver) = sync_channel(1);
        let is_over = Arc::new(AtomicBool::new(false));
        let watcher = watch(reloader.path(), wake.clone());
        if let Err(error) = &watcher {
            let path = reloader.path().display();
            tracing::warn!(%path, %error, "changes of the policy file are not told; it is polled");
        }
        let mut heard = Heard {
            receiver,
            is_over: Arc::clone(&is_over),
        };
        let thread = thread::Builder::new()
            .name("tollgate-reload".to_owned())
            .spawn(move || {
                // It may have changed since it was opened and before it was watched.
                told(reloader.look());
                follow(&mut heard, timing, || told(reloader.look()));
            })?;
        Ok(Self {
            is_over,
            wake,
            thread: Some(thread),
            watcher: watcher.ok(),
        })
    }

    /// Whether the operating system tells of changes; otherwise the file is only polled.
    #[must_use]
    pub const fn is_told(&self) -> bool {
        self.watcher.is_some()
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.watcher = None;
        self.is_over.store(true, Ordering::Release);
        // If there is no room, the thread is about to wake up anyway.
        let _sent_or_full = self.wake.try_send(());
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has said so itself.
            drop(thread.join());
        }
    }
}

fn watch(path: &Path, wake: SyncSender<()>) -> notify::Result<RecommendedWatcher> {
    let parent = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let (directory, depth) = if path.is_dir() {
        (path, RecursiveMode::Recursive)
    } else {
        (
            parent.unwrap_or(Path::new(".")),
            RecursiveMode::NonRecursive,
        )
    };
    let heard = move |event: notify::Result<notify::Event>| {
        if event.map_or(true, |event| is_change(event.kind)) {
            // One that waits stands for all that follow.
            let _sent_or_full = wake.try_send(());
        }
    };
    let mut watcher = notify::recommended_watcher(heard)?;
    watcher.watch(directory, depth)?;
    Ok(watcher)
}

/// Reading the file is an event too; if that counted, looking at it would be a reason to look at it.
const fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(AccessKind::Close(AccessMode::Write)) => true,
        EventKind::Access(_) => false,
        _ => true,
    }
}
