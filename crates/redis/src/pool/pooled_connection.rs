//! One place for a connection: up, or being made anew in the background. Must not know: what is sent over it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use redis::aio::MultiplexedConnection;
use tokio::sync::{Notify, watch};

/// A connection, and which of the lane's it is. A report about an earlier one is no longer news.
#[derive(Clone, Debug)]
pub(super) struct LiveConnection {
    pub(super) connection: MultiplexedConnection,
    pub(super) generation: u64,
}

#[derive(Debug)]
pub(super) struct PooledConnection {
    current: Mutex<Option<LiveConnection>>,
    /// Told when the tender should look at the connection.
    probe_requests: Notify,
    /// Whether the tender has tried at least once.
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

    /// Asks the tender to look at the connection soon.
    pub(super) fn request_probe(&self) {
        self.probe_requests.notify_one();
    }

    pub(super) async fn probe_requested(&self) {
        self.probe_requests.notified().await;
    }

    pub(super) fn put(&self, connection: MultiplexedConnection, generation: u64) {
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
        // The sender lives as long as the lane, so this ends only when an attempt has.
        let mut tried = self.tried.subscribe();
        let _seen = tried.wait_for(|tried| *tried).await;
    }

    fn lock(&self) -> MutexGuard<'_, Option<LiveConnection>> {
        // Nothing that is done under the lock can leave it half done.
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
