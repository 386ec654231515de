//! The scenarios whose subject is the server and the way to it, each by its number: a fault is injected under load, what every
//! client was answered is written down, and the history is held against the promises and the server's own state.

mod hung;
mod load;
mod lost_replies;
mod malformed_replies;
mod out_of_memory;
mod script_cache;
mod slow;
mod unreachable;

use std::time::Duration;

use tollgate_core::TokenBucket;
use tollgate_redis::{RedisOptions, RedisStore};
use tollgate_store::{IdentifiedLimit, Op};
use tollgate_testkit::faults::Proxy;
use tollgate_testkit::history::{Bucket, History, RecordedVerdict};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use crate::SECRET;
use crate::server_time::{decide_one, numbered_limit, slow_bucket};
use crate::topology::name_of;

/// What a call may take where the fault decides how long it does. Ten times the usual, because the machine is shared.
const DEADLINE: Duration = Duration::from_millis(150);
/// What the machine may add to it where it is shared with others. A hang is seconds.
const SLACK: Duration = Duration::from_millis(300);
/// Within this everything must be as before, as the promise says.
const SOON: Duration = Duration::from_secs(2);
/// No test spends as much.
const BURST: u64 = 1_000;

/// A server and a proxy before it.
struct ProxiedServer {
    node: RedisNode,
    proxy: Proxy,
}

impl ProxiedServer {
    fn start(arguments: &[&str], seed: u64) -> Self {
        let mut all = vec!["--save", "", "--appendonly", "no"];
        all.extend(["--enable-debug-command", "yes"]);
        all.extend(arguments);
        let node = RedisNode::start(ServerProgram::Redis, &all);
        let proxy = Proxy::seeded(node.address(), seed);
        Self { node, proxy }
    }

    /// A store that asks through the proxy.
    async fn store(&self, deadline: Duration) -> RedisStore {
        self.store_with(deadline, |_| {}).await
    }

    async fn store_with(
        &self,
        deadline: Duration,
        change: impl FnOnce(&mut RedisOptions),
    ) -> RedisStore {
        let mut options = RedisOptions::new(self.proxy.url(), SECRET);
        options.deadline = deadline;
        change(&mut options);
        RedisStore::connect(options).await.unwrap()
    }

    /// What the server has for a key of limit 1: an instant in nanoseconds.
    fn state(&self, key: &str) -> u64 {
        let state = self.node.ask(&["GET", &name_of(key)]);
        state.parse().unwrap()
    }

    /// Spends one unit, so that the bucket is not full from now on, and says what the server has for it.
    async fn prime(&self, store: &RedisStore, key: &str) -> u64 {
        let limit = limit();
        let primed = async {
            while decide_one(store, key, &limit, Op::Spend(1)).await.is_err() {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(crate::server_time::LONG_TIMEOUT, primed)
            .await
            .unwrap();
        self.state(key)
    }
}

/// Limit 1, which refills one unit in a day.
fn limit() -> IdentifiedLimit {
    numbered_limit(1, slow_bucket(BURST))
}

fn bucket() -> Bucket {
    Bucket::from(&bucket_of(BURST))
}

fn bucket_of(burst: u64) -> TokenBucket {
    slow_bucket(burst)
}

/// The history as an engine would have it that decides locally when the store does not: nothing is lost, and those answers
/// say where they come from.
fn with_fallback_answers(history: &History) -> History {
    let mut history = history.clone();
    for record in &mut history.records {
        if matches!(
            record.verdict,
            RecordedVerdict::Lost | RecordedVerdict::Failed
        ) {
            record.verdict = RecordedVerdict::Denied;
            record.is_degraded = true;
        }
    }
    history
}

/// Bytes that this process has in memory.
fn resident() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
