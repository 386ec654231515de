//! The tasks that hyper starts for HTTP/2: one for each stream of a client, one for each connection to an upstream.
//!
//! They end with the value that owns them, and their panics are counted. Must not know: HTTP.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hyper::rt::Executor;
use tokio::task::{JoinError, JoinSet};

use crate::listen::counters::{ListenerCounters, increment};

/// Starts tasks and watches them.
#[derive(Clone, Debug)]
pub(super) struct StreamTasks {
    tasks: Arc<Mutex<JoinSet<()>>>,
    counters: Arc<ListenerCounters>,
}

impl StreamTasks {
    pub(super) fn new(counters: Arc<ListenerCounters>) -> Self {
        Self {
            tasks: Arc::default(),
            counters,
        }
    }

    /// Ends all tasks.
    pub(super) fn abort_all(&self) {
        self.lock().abort_all();
    }

    fn lock(&self) -> MutexGuard<'_, JoinSet<()>> {
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn record_end(&self, ended: &Result<(), JoinError>) {
        if let Err(error) = ended
            && error.is_panic()
        {
            increment(&self.counters.panics);
            tracing::error!(%error, "HTTP/2 stream panicked");
        }
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for StreamTasks {
    fn execute(&self, task: F) {
        let mut tasks = self.lock();
        while let Some(ended) = tasks.try_join_next() {
            self.record_end(&ended);
        }
        tasks.spawn(task);
    }
}
