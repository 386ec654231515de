//! Scenarios about the server and the connection to it, each by its number. A fault is injected under load, all replies
//! are recorded, and the history is checked against the promises and the server's state.

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

/// The deadline of a call where the fault determines its duration. Ten times the default, because the machine is
/// shared.
const DEADLINE: Duration = Duration::from_millis(150);
/// The delay that a shared machine may add. A hang takes seconds.
const SLACK: Duration = Duration::from_millis(300);
/// The promised recovery time.
const SOON: Duration = Duration::from_secs(2);
/// More than any test spends.
const BURST: u64 = 1_000;

/// A server with a proxy in front of it.
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

    /// A store that connects through the proxy.
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

    /// The server's state of a key of limit 1: an instant in nanoseconds.
    fn state(&self, key: &str) -> u64 {
        let state = self.node.ask(&["GET", &name_of(key)]);
        state.parse().unwrap()
    }

    /// Spends one unit, so that the bucket is not full from now on, and returns the server's state.
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

/// The history as an engine would record it that uses a fallback quota when the store fails: failed requests become
/// degraded denials.
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

/// Resident memory of this process, in bytes.
fn resident() -> u64 {
    let said = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: u64 = said.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4_096
}
