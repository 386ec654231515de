//! Bounds on nodes, entries and replies.

use tollgate_store::StoreErrorKind;
use tollgate_store::register::{
    MAX_BODY_LEN, MAX_ENTRIES, MAX_NODES, MAX_PUTS, NodeId, Register, RegisterPut,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use super::{LIFE, heartbeat, register, remove, set};
use crate::server_time::connection;

#[tokio::test]
async fn nodes_entries_and_bodies_are_bounded_and_errors_name_the_bound() {
    let server = RedisServer::start(ServerProgram::Redis);
    let register = register(server.url()).await;
    register.heartbeat(&heartbeat(5), LIFE).await.unwrap();
    // In one call, so that on a busy machine the first node does not expire before the last one is added.
    let crowd = "local t = redis.call('TIME')[1] * 1000 + 50000 \
        for n = 2, tonumber(ARGV[1]) do \
            redis.call('HSET', KEYS[1], 'node' .. n, 'x') redis.call('ZADD', KEYS[2], t, 'node' .. n) \
        end";
    let mut crowding = redis::cmd("EVAL");
    crowding
        .arg(crowd)
        .arg(2)
        .arg(&["tg1:{fleet:default}:nodes", "tg1:{fleet:default}:lives"]);
    let crowded = crowding
        .arg(MAX_NODES)
        .query::<()>(&mut connection(&server));
    crowded.unwrap();
    let error = register
        .heartbeat(&heartbeat(9_999), LIFE)
        .await
        .unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(error.to_string().contains("1024 nodes"), "{error}");
    let members = register.heartbeat(&heartbeat(5), LIFE).await.unwrap();
    assert_eq!(members.count(), MAX_NODES, "registered nodes stay");

    let name = |n: usize| format!("override/api/{n:032x}");
    let all: Vec<RegisterPut> = (0..MAX_ENTRIES).map(|n| set(&name(n), "x")).collect();
    let batches = all.chunks(MAX_PUTS);
    for (batch, number) in batches.zip(1..) {
        register.put(NodeId(1), number, batch).await.unwrap();
    }
    let one_more = [set("switch", "x")];
    let error = register.put(NodeId(1), 100, &one_more).await.unwrap_err();
    assert_eq!(error.kind(), StoreErrorKind::Refused);
    assert!(
        error
            .to_string()
            .contains("10000 switches, overrides and blocks"),
        "{error}"
    );
    let known = [set(&name(3), "y"), remove(&name(4)), remove("unheard of")];
    register.put(NodeId(1), 100, &known).await.unwrap();
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(
        snapshot.entries.len(),
        MAX_ENTRIES,
        "on many pages, none twice"
    );
    let large = [set("large", &"x".repeat(MAX_BODY_LEN + 1))];
    let error = register.put(NodeId(1), 101, &large).await.unwrap_err();
    assert!(error.is_callers_fault(), "{error}");
}

#[tokio::test]
async fn large_entries_come_in_replies_of_bounded_size() {
    let server = RedisServer::start(ServerProgram::Redis);
    let register = register(server.url()).await;
    let large: Vec<RegisterPut> = (0..60)
        .map(|n| set(&format!("n{n}"), &"x".repeat(MAX_BODY_LEN)))
        .collect();
    let mark = register.put(NodeId(1), 1, &large).await.unwrap();
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!((snapshot.entries.len(), snapshot.cursor), (60, mark));
    let names: std::collections::HashSet<_> =
        snapshot.entries.iter().map(|entry| &entry.name).collect();
    assert_eq!(names.len(), 60);
}
