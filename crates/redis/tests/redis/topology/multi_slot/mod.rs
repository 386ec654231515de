//! Batches over several servers: a denied batch leaves no charge, and after a fault in between at most its own cost
//! stays charged, which is refunded once, however often the refund is repeated.

mod denied;
mod failed;

use tollgate_core::concurrency::LeaseId;
use tollgate_core::limit::Quota;
use tollgate_redis::RedisStore;
use tollgate_store::{IdentifiedLimit, Op, QuotaCheck, StoreError, StoreKey, StoreReply};
use tollgate_testkit::redis::{RedisNode, ServerProgram};

use super::shards::shard_of;
use crate::server_time::{decide_one, numbered_limit, slow_bucket};

fn servers(count: usize) -> Vec<RedisNode> {
    (0..count)
        .map(|_| RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]))
        .collect()
}

/// Decides several checks in one batch.
async fn decide_all(
    store: &RedisStore,
    asked: &[(&str, &IdentifiedLimit, Op)],
) -> Result<(bool, Vec<StoreReply>), StoreError> {
    let checks: Vec<QuotaCheck<'_>> = asked
        .iter()
        .map(|(key, limit, op)| QuotaCheck {
            key: StoreKey::new(key.as_bytes()).unwrap(),
            limit,
            op: *op,
        })
        .collect();
    let mut answers = vec![StoreReply::EMPTY; checks.len()];
    let outcome = store.decide(&checks, &mut answers).await?;
    assert_eq!(
        outcome.is_admitted(),
        answers.iter().all(|answer| answer.outcome.is_admitted())
    );
    Ok((outcome.is_admitted(), answers))
}

/// A key on the first server and a key on the second.
async fn keys_on_both(store: &RedisStore, nodes: &[RedisNode]) -> (String, String) {
    let limit = numbered_limit(1, slow_bucket(1_000));
    let mut found = [None, None];
    for number in 0.. {
        let key = format!("user {number}");
        decide_one(store, &key, &limit, Op::Spend(1)).await.unwrap();
        if let Some(slot) = found.get_mut(shard_of(nodes, &key).unwrap()) {
            slot.get_or_insert(key);
        }
        if let [Some(first), Some(second)] = &found {
            let keys = (first.clone(), second.clone());
            for node in nodes {
                node.tell(&["FLUSHALL"]);
            }
            return keys;
        }
    }
    unreachable!()
}

async fn remaining(store: &RedisStore, key: &str, limit: &IdentifiedLimit) -> u64 {
    let peek = match limit.limit.quota() {
        Quota::Concurrency(_) => Op::Acquire {
            id: LeaseId(0),
            weight: 0,
        },
        _ => Op::Spend(0),
    };
    let answer = decide_one(store, key, limit, peek).await.unwrap();
    answer.status.remaining
}
