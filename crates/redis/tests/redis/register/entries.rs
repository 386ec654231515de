//! Operator entries: puts, cursors, expiry and tombstones.

use std::time::Duration;

use tollgate_core::Nanos;
use tollgate_store::register::{
    ENTRY_TTL, NodeId, Register, RegisterCursor, RegisterPut, TOMBSTONE_TTL,
};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use super::{LIFE, heartbeat, register, remove, set, summary, time_to_live};

#[tokio::test]
async fn nodes_get_new_entries_once_and_new_nodes_get_all_entries() {
    for kind in ServerProgram::under_test() {
        let server = RedisServer::start(kind);
        let (one, two) = (register(server.url()).await, register(server.url()).await);
        let nothing = one.entries(None).await.unwrap();
        assert_eq!((nothing.is_complete, nothing.entries.len()), (true, 0));
        let changes = [set("a", "1"), set("b", "2"), set("c", "3")];
        let first = one.put(NodeId(1), 1, &changes).await.unwrap();
        assert_eq!(
            two.heartbeat(&heartbeat(2), LIFE).await.unwrap().cursor,
            first
        );
        let snapshot = two.entries(None).await.unwrap();
        assert_eq!(
            (summary(&snapshot), snapshot.cursor),
            (vec!["a=1".into(), "b=2".into(), "c=3".into()], first)
        );
        assert!(snapshot.is_complete);
        let second = two
            .put(NodeId(2), 1, &[set("a", "4"), remove("b")])
            .await
            .unwrap();
        assert!(second.epoch == first.epoch && second.version > first.version);
        let news = one.entries(Some(first)).await.unwrap();
        assert_eq!(
            (summary(&news), news.is_complete),
            (vec!["a=4".into(), "b-".into()], false)
        );
        assert_eq!(news.cursor, second);
        assert_eq!(one.entries(Some(second)).await.unwrap().entries, []);
        for (name, ttl) in time_to_live(&server) {
            let most = i64::try_from(ENTRY_TTL.as_nanos() / 1_000_000).unwrap();
            assert!((1..=most).contains(&ttl), "{name} lives for {ttl}");
        }
    }
}

#[tokio::test]
async fn i02_a_repeated_put_is_applied_once() {
    let server = RedisServer::start(ServerProgram::Redis);
    let register = register(server.url()).await;
    let first = register
        .put(NodeId(1), 1, &[set("a", "old")])
        .await
        .unwrap();
    let second = register
        .put(NodeId(2), 1, &[set("a", "new")])
        .await
        .unwrap();
    assert!(second.version > first.version);
    // RedisNode 1 missed the reply. Its repeated put must not overwrite the later one.
    let again = register
        .put(NodeId(1), 1, &[set("a", "old")])
        .await
        .unwrap();
    assert_eq!(again, second);
    assert_eq!(summary(&register.entries(None).await.unwrap()), ["a=new"]);
    register
        .put(NodeId(1), 2, &[set("a", "newest")])
        .await
        .unwrap();
    assert_eq!(
        summary(&register.entries(None).await.unwrap()),
        ["a=newest"]
    );
}

#[tokio::test]
async fn entries_expire_and_a_node_that_was_away_too_long_gets_all_entries() {
    let (server, mut clock) =
        RedisServer::start_with_clock(ServerProgram::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    let for_a_minute = RegisterPut {
        expires_in: Some(Nanos::MINUTE),
        ..set("short", "1")
    };
    let changes = [for_a_minute, set("long", "2"), set("gone", "3")];
    let early = register.put(NodeId(1), 1, &changes).await.unwrap();
    clock.advance(Duration::from_secs(45));
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(snapshot.entries[0].expires_in, Some(Nanos::from_secs(15)));
    let late = register.put(NodeId(1), 2, &[remove("gone")]).await.unwrap();
    clock.advance(Duration::from_secs(15));
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(summary(&snapshot), ["long=2", "gone-"]);
    clock.advance(Duration::from_nanos(TOMBSTONE_TTL.as_nanos()));
    let snapshot = register.entries(Some(early)).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.is_complete),
        (vec!["long=2".to_owned()], true)
    );
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.is_complete),
        (vec![], false),
        "the node knows the tombstone already"
    );
}

#[tokio::test]
async fn i15_entries_outlive_all_nodes_and_do_not_expire_while_one_is_alive() {
    let (server, mut clock) =
        RedisServer::start_with_clock(ServerProgram::Redis, Duration::from_secs(1_800_000_000));
    let register = register(server.url()).await;
    register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let day = Duration::from_secs(86_400);
    for _ in 0..3 {
        clock.advance(day * 20);
        assert_eq!(summary(&register.entries(None).await.unwrap()), ["a=1"]);
        register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    }
    clock.advance(day * 31);
    let snapshot = register.entries(None).await.unwrap();
    assert_eq!(
        (summary(&snapshot), snapshot.cursor),
        (vec![], RegisterCursor::default())
    );
    assert_eq!(time_to_live(&server), [], "nothing is left behind");
}
