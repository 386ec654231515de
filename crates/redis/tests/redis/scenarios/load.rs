//! Clients that keep spending while a fault comes and goes, and record the replies.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tollgate_core::Outcome;
use tollgate_redis::RedisStore;
use tollgate_store::{IdentifiedLimit, Op};
use tollgate_testkit::history::{
    History, Operation, RecordedReply, RecordedVerdict, Recorder, ReportedQuota,
};

use crate::server_time::decide_one;

/// Clients that run until they are stopped.
pub(super) struct LoadGenerator {
    is_over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    recorder: Arc<Recorder>,
    clients: JoinSet<()>,
}

impl LoadGenerator {
    /// Starts one client for each key, on the stores in turn. A client waits `every` between two requests.
    pub(super) fn start(
        stores: &[Arc<RedisStore>],
        keys: &[&str],
        limit: IdentifiedLimit,
        every: Duration,
    ) -> Self {
        let mut load = Self {
            is_over: Arc::default(),
            rounds: Arc::default(),
            recorder: Arc::new(Recorder::of_process(0)),
            clients: JoinSet::new(),
        };
        for (index, key) in keys.iter().enumerate() {
            let store = Arc::clone(&stores[index % stores.len()]);
            let (is_over, rounds) = (Arc::clone(&load.is_over), Arc::clone(&load.rounds));
            let (recorder, key) = (Arc::clone(&load.recorder), (*key).to_owned());
            load.clients.spawn(async move {
                let mut pace = tokio::time::interval(every);
                pace.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
                while !is_over.load(Ordering::Relaxed) {
                    spend(&store, &key, &limit, &recorder).await;
                    rounds.fetch_add(1, Ordering::Relaxed);
                    pace.tick().await;
                }
            });
        }
        load
    }

    /// The number of finished requests.
    pub(super) fn rounds(&self) -> u64 {
        self.rounds.load(Ordering::Relaxed)
    }

    /// Waits for this many more finished requests.
    pub(super) async fn go_on(&self, rounds: u64) {
        let goal = self.rounds.load(Ordering::Relaxed) + rounds;
        crate::topology::wait_until("the load goes on", || async {
            self.rounds.load(Ordering::Relaxed) >= goal
        })
        .await;
    }

    /// Waits until this many consecutive requests succeeded.
    pub(super) async fn until_answered(&self, in_a_row: u64) {
        let mut known = self.failures();
        let mut since = self.rounds.load(Ordering::Relaxed);
        crate::topology::wait_until("the store answers again", || {
            let (failures, now) = (self.failures(), self.rounds.load(Ordering::Relaxed));
            if failures != known {
                (known, since) = (failures, now);
            }
            async move { now >= since + in_a_row }
        })
        .await;
    }

    /// The number of failed requests.
    pub(super) fn failures(&self) -> usize {
        let history = self.recorder.history();
        history.count(RecordedVerdict::Lost) + history.count(RecordedVerdict::Failed)
    }

    pub(super) async fn end(self) -> History {
        self.is_over.store(true, Ordering::Relaxed);
        self.clients.join_all().await;
        self.recorder.history()
    }
}

/// Spends one unit and records the result.
pub(super) async fn spend(
    store: &RedisStore,
    key: &str,
    limit: &IdentifiedLimit,
    recorder: &Recorder,
) {
    let pending = recorder.invoke();
    let reply = match decide_one(store, key, limit, Op::Spend(1)).await {
        Ok(answer) => RecordedReply {
            verdict: if answer.outcome.is_admitted() {
                RecordedVerdict::Admitted
            } else {
                RecordedVerdict::Denied
            },
            is_degraded: false,
            retry_after: match answer.outcome {
                Outcome::Deny { retry_after } => Some(retry_after.as_nanos()),
                _ => None,
            },
            quota: Some(ReportedQuota {
                limit: answer.status.limit,
                remaining: answer.status.remaining,
                reset_after: answer.status.reset_after.as_nanos(),
            }),
        },
        Err(error) if error.may_have_charged() => RecordedReply::only(RecordedVerdict::Lost),
        Err(_not_charged) => RecordedReply::only(RecordedVerdict::Failed),
    };
    recorder.complete(&pending, Operation::Spend, &[(key, 1)], reply);
}
