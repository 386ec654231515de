//! Clients that keep spending on several keys while servers come and go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::task::JoinSet;
use tollgate_redis::RedisStore;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreError, StoreKey, StoreReply};

use super::history::{History, Tally};
use crate::server_time::{numbered_limit, slow_bucket};

/// Clients that run until they are stopped.
pub(super) struct LoadGenerator {
    is_over: Arc<AtomicBool>,
    /// Requests of all clients together.
    rounds: Arc<AtomicU64>,
    spenders: JoinSet<(String, Tally)>,
}

impl LoadGenerator {
    /// Starts one client for each key, which spends on `limits` limits together, each with this burst.
    pub(super) fn start(
        stores: &[Arc<RedisStore>],
        keys: &[String],
        limits: u16,
        burst: u64,
    ) -> Self {
        let (is_over, rounds) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let mut spenders = JoinSet::new();
        for (index, key) in keys.iter().enumerate() {
            let store = Arc::clone(&stores[index % stores.len()]);
            let (key, over, rounds) = (key.clone(), Arc::clone(&is_over), Arc::clone(&rounds));
            spenders.spawn(async move {
                let limits: Vec<IdentifiedLimit> = (1..=limits)
                    .map(|id| numbered_limit(id, slow_bucket(burst)))
                    .collect();
                let mut tally = Tally::default();
                // Slower than possible: the servers share the machine.
                let mut pace = tokio::time::interval(std::time::Duration::from_millis(2));
                pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                while !over.load(Ordering::Relaxed) {
                    tally.add(spend(&store, &key, &limits).await);
                    rounds.fetch_add(1, Ordering::Relaxed);
                    pace.tick().await;
                }
                (key, tally)
            });
        }
        Self {
            is_over,
            rounds,
            spenders,
        }
    }

    /// Waits for this many more requests.
    pub(super) async fn go_on(&self, rounds: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        super::wait_until("the load goes on", || async {
            self.rounds.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    /// Stops the clients. Results of the same key are added up.
    pub(super) async fn end(self) -> History {
        self.is_over.store(true, Ordering::Relaxed);
        let mut history = History::new();
        for (key, tally) in self.spenders.join_all().await {
            let known = history.entry(key).or_default();
            known.admitted += tally.admitted;
            known.denied += tally.denied;
            known.ambiguous += tally.ambiguous;
            known.not_charged += tally.not_charged;
            for (errors, count) in tally.errors {
                *known.errors.entry(errors).or_default() += count;
            }
        }
        history
    }
}

/// Spends one unit of each limit under one key.
pub(super) async fn spend(
    store: &RedisStore,
    key: &str,
    limits: &[IdentifiedLimit],
) -> Result<bool, StoreError> {
    let checks: Vec<QuotaCheck<'_>> = limits
        .iter()
        .map(|limit| QuotaCheck {
            key: StoreKey::new(key.as_bytes()).unwrap(),
            limit,
            op: Op::Spend(1),
        })
        .collect();
    let mut answers = vec![StoreReply::EMPTY; checks.len()];
    let outcome = store.decide(&checks, &mut answers).await?;
    Ok(outcome.is_admitted())
}

/// This many keys.
pub(super) fn keys(count: usize) -> Vec<String> {
    (0..count)
        .map(|number| format!("client {number}"))
        .collect()
}
