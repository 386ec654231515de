//! Servers that sentinels monitor: only the primary that they name is used.

use std::sync::Arc;
use std::time::Duration;

use tollgate_redis::{Credentials, CredentialsProvider, RedisOptions, RedisStore};
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::redis::{RedisSentinels, ServerProgram};

use super::history::check;
use super::load::{LoadGenerator, keys};
use super::{exclusive, store_at, wait_until};
use crate::SECRET;
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

const BURST: u64 = 40;

/// A user of the sentinels.
#[derive(Debug)]
struct FixedCredentials(&'static str);

impl CredentialsProvider for FixedCredentials {
    fn current(&self) -> std::io::Result<Credentials> {
        Ok(Credentials {
            username: Some("asker".to_owned()),
            password: self.0.to_owned(),
        })
    }
}

const DOWN_AFTER: u32 = 1_500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_16_only_the_primary_that_sentinels_promote_is_used() {
    let _exclusive = exclusive().await;
    let mut set = RedisSentinels::start(ServerProgram::Redis, DOWN_AFTER);
    let store = Arc::new(store_at(set.url(), Duration::from_secs(2)).await);
    let keys = keys(8);
    let limit = numbered_limit(1, slow_bucket(BURST));
    let load = LoadGenerator::start(&[Arc::clone(&store)], &keys, 1, BURST);
    load.go_on(40).await;

    set.servers[0].kill();
    set.until_primary_is(1);
    wait_until("the new primary is used", || async {
        decide_one(&store, "alice", &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    // The old primary comes back as a replica; nothing changes.
    set.servers[0].restart();
    wait_until("the old one follows", || async {
        set.servers[0].info("master_link_status").as_deref() == Some("up")
    })
    .await;
    load.go_on(40).await;

    // The other server is only paused: its connections stay open, and it does not reply.
    set.servers[1].pause();
    set.until_primary_is(0);
    wait_until("the first server is used again", || async {
        decide_one(&store, "alice", &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    set.servers[1].resume();
    wait_until("the stopped one follows", || async {
        set.servers[1].info("role").as_deref() == Some("slave")
    })
    .await;
    load.go_on(80).await;
    let history = load.end().await;
    check(&history, BURST, |_| 2).unwrap();
    // The store does not stay connected to a replica.
    for key in &keys {
        decide_one(&store, key, &limit, Op::Spend(0)).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn s_16_a_manual_failover_is_followed_on_valkey_too() {
    let _exclusive = exclusive().await;
    let set = RedisSentinels::start(ServerProgram::NewValkey, DOWN_AFTER);
    let store = Arc::new(store_at(set.url(), Duration::from_secs(2)).await);
    let keys = keys(8);
    let load = LoadGenerator::start(&[Arc::clone(&store)], &keys, 1, BURST);
    load.go_on(40).await;
    set.failover(1);
    let limit = numbered_limit(1, slow_bucket(BURST));
    wait_until("the new primary is used", || async {
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .is_ok()
            && set.servers[1].ask(&["EXISTS", &super::name_of("alice")]) == "1"
    })
    .await;
    load.go_on(80).await;
    check(&load.end().await, BURST, |_| 1).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sentinels_that_start_later_are_found_and_an_unknown_master_is_unreachable() {
    let _exclusive = exclusive().await;
    let mut set = RedisSentinels::start(ServerProgram::Redis, DOWN_AFTER);
    let url = set.url();
    for sentinel in &mut set.sentinels {
        sentinel.kill();
    }
    let store = store_at(url.clone(), LONG_TIMEOUT).await;
    let limit = numbered_limit(1, slow_bucket(BURST));
    let error = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    // One of three sentinels is enough.
    set.sentinels[2].restart();
    wait_until("the primary is used", || async {
        decide_one(&store, "alice", &limit, Op::Spend(0))
            .await
            .is_ok()
    })
    .await;
    // The sentinels have users of their own.
    set.sentinels[2].tell(&[
        "ACL", "SETUSER", "asker", "on", ">right", "~*", "&*", "+@all",
    ]);
    for (password, is_right) in [("right", true), ("wrong", false)] {
        let one_sentinel = format!("redis+sentinel://{}/limits", set.sentinels[2].address());
        let mut options = RedisOptions::new(one_sentinel, SECRET);
        options.deadline = LONG_TIMEOUT;
        options.connect_deadline = Duration::from_secs(2);
        options.sentinel_credentials = Some(Arc::new(FixedCredentials(password)));
        let store = RedisStore::connect(options).await.unwrap();
        let asked = decide_one(&store, "alice", &limit, Op::Spend(0)).await;
        assert_eq!(asked.is_ok(), is_right, "{asked:?}");
    }
    let wrong = store_at(url.replace("/limits", "/unknown"), LONG_TIMEOUT).await;
    let error = decide_one(&wrong, "alice", &limit, Op::Spend(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
}
