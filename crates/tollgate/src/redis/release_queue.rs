//! What is left to do after somebody went away: places that were given up by dropping something.
//!
//! `drop` cannot wait for a server, so it leaves an errand, and one task for each connection runs them in order. An errand
//! that fails is not repeated: everything that comes here is given back by time as well. Must not know: why somebody left.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tollgate_redis::RedisStore;
use tollgate_store::contract::MAX_CHECKS;
use tollgate_store::{IdentifiedLimit, QuotaCheck, StoreError, StoreKey, StoreReply};

use crate::error::Error;
use crate::key::OwnedKey;

/// How many errands may be waiting. Beyond it they are left to time.
const MAX_QUEUED_RELEASES: usize = 4_096;

/// Operations on one key that nobody waits for.
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
    /// Starts the task. It ends when this is dropped and the last errand is done, or with the runtime.
    #[expect(
        clippy::disallowed_methods,
        reason = "a task that dies closes the channel, and every errand after that is counted as undone"
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

    /// Leaves an errand, or leaves it to time where there are too many. Never waits.
    pub(super) fn enqueue(&self, errand: BackgroundRelease) {
        if self.sender.try_send(errand).is_err() {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many were left to time.
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
            .map(|(ruled, op)| QuotaCheck {
                key,
                limit: ruled,
                op: *op,
            })
            .collect();
        decide_ignoring_replies(store, &checks).await?;
        Ok(())
    }
}

/// Asks where no single answer matters.
pub(super) async fn decide_ignoring_replies(
    store: &RedisStore,
    checks: &[QuotaCheck<'_>],
) -> Result<(), StoreError> {
    let mut answers = [StoreReply::EMPTY; MAX_CHECKS];
    // Callers have at most as many limits as fit; what does not is refused by the store.
    let room = answers.len().min(checks.len());
    let answers = answers.get_mut(..room).unwrap_or_default();
    store.decide(checks, answers).await.map(|_verdict| ())
}
