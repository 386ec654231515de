//! One pooled connection: up, or being replaced in the background. Must not know: what is sent over it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::{Notify, watch};

use crate::connection::PipelinedConnection;

/// A connection and its generation. Reports about an earlier generation are ignored.
#[derive(Clone, Debug)]
pub(super) struct LiveConnection {
    pub(super) connection: PipelinedConnection,
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct PooledConnection {
    current: Mutex<Option<LiveConnection>>,
    /// Wakes the supervisor to probe the connection.
    probe_requests: Notify,
    /// Whether the supervisor has tried to connect at least once.
    tried: watch::Sender<bool>,
}

impl Default for PooledConnection {
    fn default() -> Self {
        Self {
            current: Mutex::default(),
            probe_requests: Notify::new(),
            tried: watch::Sender::new(false),
        }
    }
}

impl PooledConnection {
    pub(super) fn current(&self) -> Option<LiveConnection> {
        self.lock().clone()
    }

    /// Takes the connection out of use, unless it has been replaced already.
    pub(super) fn discard(&self, generation: u64) {
        let mut current = self.lock();
        if current
            .as_ref()
            .is_some_and(|current| current.generation == generation)
        {
            *current = None;
            self.probe_requests.notify_one();
        }
    }

    /// Asks the supervisor to probe the connection soon.
    pub(super) fn request_probe(&self) {
        self.probe_requests.notify_one();
    }

    pub(super) async fn probe_requested(&self) {
        self.probe_requests.notified().await;
    }

    pub(super) fn put(&self, connection: PipelinedConnection, generation: u64) {
        *self.lock() = Some(LiveConnection {
            connection,
            generation,
        });
        self.mark_tried();
    }

    pub(super) fn mark_tried(&self) {
        self.tried.send_replace(true);
    }

    pub(super) async fn wait_for_first_attempt(&self) {
        // The sender lives as long as `self`, so this ends only after an attempt.
        let mut tried = self.tried.subscribe();
        let _seen = tried.wait_for(|tried| *tried).await;
    }

    fn lock(&self) -> MutexGuard<'_, Option<LiveConnection>> {
        // Code under the lock cannot leave it half changed.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
