//! Users and passwords that change while the store is in use.

use std::path::PathBuf;
use std::sync::Arc;

use tollgate_redis::{PasswordFile, RedisOptions, RedisStore};
use tollgate_store::{Op, StoreErrorKind};
use tollgate_testkit::process::TempFolder;
use tollgate_testkit::redis::{RedisCluster, RedisNode, ServerProgram, info};

use super::{exclusive, wait_until};
use crate::SECRET;
use crate::server_time::{LONG_TIMEOUT, decide_one, numbered_limit, slow_bucket};

/// A password file that is deleted with the test.
struct PasswordOnDisk(TempFolder);

impl PasswordOnDisk {
    fn new(text: &str) -> Self {
        let folder = TempFolder::new("password").unwrap();
        folder.write("password", text).unwrap();
        Self(folder)
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("password")
    }

    fn change(&self, text: &str) {
        // As orchestrators do: rename the new file over the old one.
        let next = self.0.write("next", text).unwrap();
        std::fs::rename(next, self.path()).unwrap();
    }
}

fn logins(node: &RedisNode) -> u64 {
    let stats = node.ask(&["INFO", "commandstats"]);
    info::command(&stats, "auth").map_or(0, |stat| stat.calls)
}

fn connections(node: &RedisNode) -> u64 {
    node.info("total_connections_received")
        .unwrap()
        .parse()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_password_is_used_on_open_and_on_new_connections() {
    let node = RedisNode::start(ServerProgram::Redis, &["--save", "", "--appendonly", "no"]);
    let rights = ["on", "~tg1:*", "~tg2:*", "+@all"];
    let user = |password: &str| {
        let call = [&["ACL", "SETUSER", "limiter"], &rights[..], &[password]].concat();
        node.tell(&call);
    };
    user(">first");
    let file = PasswordOnDisk::new("first\n");
    let mut options = RedisOptions::new(node.url(), SECRET);
    options.deadline = LONG_TIMEOUT;
    options.connect_deadline = LONG_TIMEOUT;
    options.connections = 1;
    let provider = PasswordFile::new(Some("limiter".to_owned()), file.path());
    options.credentials = Some(Arc::new(provider));
    let store = RedisStore::connect(options).await.unwrap();
    let limit = numbered_limit(1, slow_bucket(1_000));
    decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();
    let before = logins(&node);

    // The server accepts both passwords for a while, and then only the new one.
    user(">second");
    file.change("second");
    wait_until("the store authenticates again", || async {
        logins(&node) > before
    })
    .await;
    user("<first");
    decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();

    // New connections use the new password.
    let connected = connections(&node);
    node.tell(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]);
    wait_until("it is connected again", || async {
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .is_ok()
            && connections(&node) > connected
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_password_leaves_the_store_disconnected_until_it_is_corrected() {
    let node = RedisNode::start(
        ServerProgram::NewValkey,
        &["--save", "", "--appendonly", "no"],
    );
    node.tell(&[
        "ACL", "SETUSER", "limiter", "on", "~tg1:*", "~tg2:*", "+@all", ">right",
    ]);
    let file = PasswordOnDisk::new("wrong");
    let mut options = RedisOptions::new(node.url(), SECRET);
    options.deadline = LONG_TIMEOUT;
    options.connect_deadline = LONG_TIMEOUT;
    let provider = PasswordFile::new(Some("limiter".to_owned()), file.path());
    options.credentials = Some(Arc::new(provider));
    let store = RedisStore::connect(options).await.unwrap();
    let limit = numbered_limit(1, slow_bucket(1_000));
    let error = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Unreachable, "{error}");
    file.change("right");
    wait_until("it is connected", || async {
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough_in_a_cluster() {
    let _exclusive = exclusive().await;
    let cluster = RedisCluster::start_with(ServerProgram::Redis, 15_000, 0);
    let rights = "on >right ~tg1:* ~tg2:* -@all +evalsha +script|load +time +get +mget +set +ping +role +info \
        +cluster|slots +asking";
    for node in &cluster.nodes {
        let mut call = vec!["ACL", "SETUSER", "limiter"];
        call.extend(rights.split_whitespace());
        node.tell(&call);
    }
    let url = cluster.url().replace("://", "://limiter:right@");
    let store = super::store_at(url, LONG_TIMEOUT).await;
    let limit = numbered_limit(1, slow_bucket(1_000));
    let name = super::name_of("alice");
    let slot: u16 = cluster.nodes[0]
        .ask(&["CLUSTER", "KEYSLOT", &name])
        .parse()
        .unwrap();
    let home = cluster.owner(slot, 0).unwrap();
    // A key that does not exist yet, in a slot that is being migrated: its first call is redirected with ASK.
    cluster.begin_move(slot, home, (home + 1) % 3);
    for left in [999, 998] {
        let answer = decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap();
        assert_eq!(answer.status.remaining, left);
    }
    let there = &cluster.nodes[(home + 1) % 3];
    cluster.end_move(slot, home, (home + 1) % 3);
    assert_eq!(there.ask(&["EXISTS", &name]), "1");
    let answer = decide_one(&store, "alice", &limit, Op::Spend(1))
        .await
        .unwrap();
    assert_eq!(answer.status.remaining, 997);
    assert_eq!(store.inspect().await, []);
}

/// A user with only the permissions that the store needs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_permissions_are_enough() {
    for kind in [ServerProgram::Redis, ServerProgram::NewValkey] {
        let node = RedisNode::start(kind, &["--save", "", "--appendonly", "no"]);
        let rights = "on >right ~tg1:* ~tg2:* -@all +evalsha +script|load +time +get +mget +set +ping +role +info";
        let mut call = vec!["ACL", "SETUSER", "limiter"];
        call.extend(rights.split(' '));
        node.tell(&call);
        let url = format!("redis://limiter:right@{}", node.address());
        let store = super::store_at(url, LONG_TIMEOUT).await;
        let limit = numbered_limit(1, slow_bucket(1_000));
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap();
        assert_eq!(store.inspect().await, []);
        // Without these two commands the store works, and warns that it cannot inspect the server.
        node.tell(&["ACL", "SETUSER", "limiter", "-role", "-info"]);
        decide_one(&store, "alice", &limit, Op::Spend(1))
            .await
            .unwrap();
        let found = store.inspect().await;
        assert_eq!(
            found[0].kind,
            tollgate_redis::ServerWarningKind::Silent,
            "{found:?}"
        );
    }
}
