//! Releases in the background: permits and queue slots whose guards were dropped.
//!
//! `drop` cannot await Redis, so it enqueues a release. One task for each connection runs the releases in order. A release
//! that fails is not retried, because everything released here also expires. Must not know: why a guard was dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tollgate_redis::RedisStore;
use tollgate_store::{IdentifiedLimit, QuotaCheck, StoreError, StoreKey, StoreReply};

use crate::error::Error;
use crate::key::OwnedKey;

/// The largest number of queued releases. Further releases are dropped and expire.
const MAX_QUEUED_RELEASES: usize = 4_096;

/// Operations on one key whose replies are not needed.
#[derive(Debug)]
pub(super) struct BackgroundRelease {
    pub(super) key: OwnedKey,
    pub(super) ops: Vec<(IdentifiedLimit, tollgate_store::Op)>,
}

#[derive(Debug)]
pub(super) struct ReleaseQueue {
    sender: mpsc::Sender<BackgroundRelease>,
    failed: Arc<AtomicU64>,
}

impl ReleaseQueue {
    /// Starts the task. It ends when the queue is dropped and empty, or with the runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "if the task dies, the channel closes and every later release is counted as failed"
    )]
    pub(super) fn start(store: Arc<RedisStore>) -> Self {
        let (sender, mut receiver) = mpsc::channel::<BackgroundRelease>(MAX_QUEUED_RELEASES);
        let undone = Arc::new(AtomicU64::new(0));
        let failures = Arc::clone(&undone);
        drop(tokio::spawn(async move {
            while let Some(errand) = receiver.recv().await {
                if errand.run(&store).await.is_err() {
                    failures.fetch_add(1, Ordering::Relaxed);
                }
            }
        }));
        Self {
            sender,
            failed: undone,
        }
    }

    /// Enqueues a release, or counts it as failed if the queue is full. Never blocks.
    pub(super) fn enqueue(&self, errand: BackgroundRelease) {
        if self.sender.try_send(errand).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many releases failed or were dropped.
    pub(super) fn failed(&self) -> u64 {
        self.failed.load(Ordering::Relaxed)
    }
}

impl BackgroundRelease {
    async fn run(&self, store: &RedisStore) -> Result<(), Error> {
        let parts = self.key.parts();
        let key = StoreKey::from_parts(&parts)?;
        let checks: Vec<_> = self
            .ops
            .iter()
            .map(|(limit, op)| QuotaCheck {
                key,
                limit,
                op: *op,
            })
            .collect();
        decide_ignoring_replies(store, &checks).await?;
        Ok(())
    }
}

/// Decides a batch whose replies are not needed.
pub(super) async fn decide_ignoring_replies(
    store: &RedisStore,
    checks: &[QuotaCheck<'_>],
) -> Result<(), StoreError> {
    let mut replies = vec![StoreReply::EMPTY; checks.len()];
    store.decide(checks, &mut replies).await.map(|_verdict| ())
}
