//! A register that loses all of its keys, or the last puts in a failover.

use tollgate_store::register::{NodeId, PutMode, Register, RegisterCursor, RegisterPut};
use tollgate_testkit::redis::{RedisServer, ServerProgram};

use super::{LIFE, heartbeat, register, remove, set, summary};
use crate::server_time::connection;

#[tokio::test]
async fn a_register_that_lost_everything_says_so_and_is_refilled_with_missing_entries() {
    let server = RedisServer::start(ServerProgram::Redis);
    let register = register(server.url()).await;
    let before = register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let flush = redis::cmd("FLUSHALL").query::<()>(&mut connection(&server));
    flush.unwrap();
    let members = register.heartbeat(&heartbeat(1), LIFE).await.unwrap();
    assert_eq!(members.cursor, RegisterCursor::default());
    register
        .put(NodeId(2), 1, &[set("a", "2"), remove("b")])
        .await
        .unwrap();
    let heal = |name: &str, body: &str| RegisterPut {
        mode: PutMode::SetIfAbsent,
        ..set(name, body)
    };
    let heals = [heal("a", "1"), heal("b", "1"), heal("c", "1")];
    register.put(NodeId(1), 2, &heals).await.unwrap();
    let snapshot = register.entries(Some(before)).await.unwrap();
    assert!(snapshot.is_complete && snapshot.cursor.epoch != before.epoch);
    assert_eq!(summary(&snapshot), ["a=2", "b-", "c=1"]);
}

/// A copy of all keys, to simulate the promotion of a lagging replica.
fn snapshot(server: &RedisServer) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut connection = connection(server);
    let names: Vec<Vec<u8>> = redis::cmd("KEYS").arg("*").query(&mut connection).unwrap();
    let dump = |name: Vec<u8>| {
        let dumped = redis::cmd("DUMP").arg(&name).query(&mut connection);
        (name, dumped.unwrap())
    };
    names.into_iter().map(dump).collect()
}

fn restore(server: &RedisServer, snapshot: &[(Vec<u8>, Vec<u8>)]) {
    let mut connection = connection(server);
    let flushed = redis::cmd("FLUSHALL").query::<()>(&mut connection);
    flushed.unwrap();
    for (name, dumped) in snapshot {
        let mut restore = redis::cmd("RESTORE");
        restore.arg(name).arg(3_600_000).arg(dumped);
        restore.query::<()>(&mut connection).unwrap();
    }
}

#[tokio::test]
async fn s_16_a_register_that_lost_its_last_puts_in_a_failover_says_so_even_after_later_puts() {
    let server = RedisServer::start(ServerProgram::Redis);
    let register = register(server.url()).await;
    let early = register.put(NodeId(1), 1, &[set("a", "1")]).await.unwrap();
    let copy = snapshot(&server);
    let late = register.put(NodeId(1), 2, &[set("b", "2")]).await.unwrap();
    restore(&server, &copy);
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(
        (snapshot.lost_after, snapshot.is_complete),
        (Some(early.version), true)
    );
    assert_eq!(summary(&snapshot), ["a=1"]);
    let later = register.put(NodeId(2), 1, &[set("c", "3")]).await.unwrap();
    assert!(later.version > late.version, "no version is given twice");
    let snapshot = register.entries(Some(late)).await.unwrap();
    assert_eq!(snapshot.lost_after, Some(early.version));
    assert_eq!(summary(&snapshot), ["a=1", "c=3"]);
    let snapshot = register.entries(Some(later)).await.unwrap();
    assert_eq!((snapshot.lost_after, snapshot.entries.len()), (None, 0));
}
