//! Several servers: sentinels, clusters and shards, with faults while they are in use.

mod cluster;
mod credentials;
mod history;
mod inspect;
mod leases;
mod load;
mod multi_slot;
mod partitions;
mod replicas;
mod sentinel;
mod shards;
mod tls;

use std::sync::LazyLock;
use std::time::Duration;

use tokio::sync::{Mutex, MutexGuard};
use tollgate_redis::wire::ScriptCall;
use tollgate_redis::{RedisOptions, RedisStore, ReservationRetention};
use tollgate_store::{Op, QuotaCheck, StoreKey};

pub(crate) use shards::url as shards_url;

use crate::SECRET;
use crate::server_time::{LONG_TIMEOUT, numbered_limit, slow_bucket};

/// Tests that start half a dozen servers run one after the other. More at a time, and the servers would declare each
/// other dead for lack of CPU.
pub(crate) async fn exclusive() -> MutexGuard<'static, ()> {
    static HEAVY: LazyLock<Mutex<()>> = LazyLock::new(Mutex::default);
    HEAVY.lock().await
}

/// A store whose calls fail at this deadline.
async fn store_at(url: String, deadline: Duration) -> RedisStore {
    let mut options = RedisOptions::new(url, SECRET);
    options.deadline = deadline;
    options.connect_deadline = Duration::from_secs(2);
    RedisStore::connect(options).await.unwrap()
}

/// The name of a key of limit 1 on the server.
pub(crate) fn name_of(key: &str) -> String {
    let limit = numbered_limit(1, slow_bucket(1));
    let check = QuotaCheck {
        key: StoreKey::new(key.as_bytes()).unwrap(),
        limit: &limit,
        op: Op::Spend(1),
    };
    let request = ScriptCall::new(SECRET, ReservationRetention::default(), &[check], None).unwrap();
    String::from_utf8(request.keys.get(0).unwrap().to_vec()).unwrap()
}

/// Polls until the condition is true; fails after a long time.
pub(crate) async fn wait_until<F: Future<Output = bool>>(
    what: &str,
    mut condition: impl FnMut() -> F,
) {
    let mut looks = tokio::time::interval(Duration::from_millis(5));
    let waiting = async {
        while !condition().await {
            looks.tick().await;
        }
    };
    let waited = tokio::time::timeout(LONG_TIMEOUT * 3, waiting).await;
    assert!(waited.is_ok(), "{what}: it did not come true");
}
