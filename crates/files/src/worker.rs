//! Runs file work on a thread of its own, with a deadline.
//!
//! A call to a file system cannot be cancelled: a hung mount never answers. So a thread that misses its deadline is left behind.
//! Until it ends, further work is refused, so there is at most one. Must not know: which files, what is done with them.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

/// The default deadline of file work.
pub const FILE_DEADLINE: Duration = Duration::from_secs(5);

/// Runs file work, one after the other.
///
/// ```
/// use tollgate_files::FileWorker;
///
/// assert_eq!(FileWorker::new("read").run(|| 1 + 1).unwrap(), 2);
/// ```
#[derive(Debug)]
pub struct FileWorker {
    /// What the work does, for messages: `read`, `write`.
    verb: &'static str,
    deadline: Duration,
    /// Locked while a caller waits for its work.
    turn: Mutex<()>,
    is_busy: Arc<AtomicBool>,
}

/// The work has no result.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileWorkError {
    /// It did not finish in time. Its thread is left behind, and its result is dropped.
    TimedOut(&'static str, Duration),
    /// Earlier work that missed its deadline has not finished yet.
    Unfinished(&'static str),
    /// It panicked.
    Panicked,
    /// There is no thread for it.
    NoThread(io::Error),
}

/// Says that a thread works, until it is dropped.
struct BusyMark(Arc<AtomicBool>);

impl Drop for BusyMark {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl FileWorker {
    /// A worker with the default deadline. `verb` is for messages: `read` or `write`.
    #[must_use]
    pub fn new(verb: &'static str) -> Self {
        Self::with_deadline(verb, FILE_DEADLINE)
    }

    /// A worker with another deadline.
    #[must_use]
    pub fn with_deadline(verb: &'static str, deadline: Duration) -> Self {
        Self {
            verb,
            deadline,
            turn: Mutex::new(()),
            is_busy: Arc::default(),
        }
    }

    /// Runs `work` on a thread and waits for its result, at most until the deadline. Concurrent calls wait for each other.
    ///
    /// # Errors
    /// The work, or work before it, did not finish in time.
    pub fn run<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, FileWorkError> {
        // It guards no data, so poison means nothing.
        let _turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
        if self.is_busy.swap(true, Ordering::Acquire) {
            return Err(FileWorkError::Unfinished(self.verb));
        }
        let mark = BusyMark(Arc::clone(&self.is_busy));
        let (send, receive) = sync_channel(1);
        let spawned = thread::Builder::new()
            .name(format!("tollgate-{}", self.verb))
            .spawn(move || {
                let result = work();
                // Before the result, so that the caller can begin new work at once.
                drop(mark);
                // After the deadline nobody waits for it.
                send.send(result).ok();
            });
        spawned.map_err(FileWorkError::NoThread)?;
        receive
            .recv_timeout(self.deadline)
            .map_err(|why| match why {
                RecvTimeoutError::Timeout => FileWorkError::TimedOut(self.verb, self.deadline),
                RecvTimeoutError::Disconnected => FileWorkError::Panicked,
            })
    }
}

impl fmt::Display for FileWorkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TimedOut(verb, deadline) => {
                write!(f, "the {verb} did not finish within {deadline:?}")
            }
            Self::Unfinished(verb) => write!(f, "the previous {verb} has not finished"),
            Self::Panicked => f.write_str("the thread panicked"),
            Self::NoThread(error) => write!(f, "there is no thread for it: {error}"),
        }
    }
}

impl std::error::Error for FileWorkError {}

impl From<FileWorkError> for io::Error {
    fn from(error: FileWorkError) -> Self {
        Self::other(error)
    }
}
