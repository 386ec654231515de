//! Connections of Redis clients: many, too many, idle, and at shutdown.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;
use tokio::time::{Instant, pause};
use tollgate_core::Timestamp;
use tollgate_server::listen::DrainOutcome;
use tollgate_server::resp::{RespLimits, RespServer};
use tollgate_store::{Clock, MemoryStore};

use super::{NOW, listen, server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_connections_are_admitted_exactly_the_limit() {
    let listening = listen(server().0, RespLimits::default()).await;
    let mut clients = JoinSet::new();
    for _ in 0..64 {
        let mut client = listening.connect().await;
        clients.spawn(async move {
            client
                .send(&b"CL.THROTTLE shared 99 1 60\r\n".repeat(10))
                .await;
            client.send(b"QUIT\r\n").await;
            client
                .read_until_closed()
                .await
                .matches("*5\r\n:0\r\n")
                .count()
        });
    }
    assert_eq!(clients.join_all().await.iter().sum::<usize>(), 100);
    assert_eq!(listening.stop().await, DrainOutcome { aborted: 0 });
}

#[tokio::test]
async fn connections_above_the_limit_get_an_error_and_the_others_are_served() {
    let mut limits = RespLimits::default();
    limits.listener.max_connections = 2;
    let listening = listen(server().0, limits).await;
    let (mut one, mut two) = (listening.connect().await, listening.connect().await);
    one.pong().await;
    two.pong().await;
    let refused = listening.connect().await.read_until_closed().await;
    assert!(
        refused.is_empty() || refused == "-ERR max number of clients reached\r\n",
        "{refused}"
    );
    assert_eq!(listening.server.counters().refused_connections(), 1);
    one.send(b"QUIT\r\n").await;
    assert_eq!(one.read_until_closed().await, "+OK\r\n");
    drop(one);
    loop {
        // The client may see the close before the server has counted it.
        let mut three = listening.connect().await;
        three.send(b"QUIT\r\n").await;
        if three.read_until_closed().await == "+OK\r\n" {
            break;
        }
    }
    two.pong().await;
}

/// With tokio's time paused, waiting for a silent client jumps to the next timer.
#[tokio::test]
async fn a_silent_connection_is_closed_after_its_time_and_not_before() {
    let mut limits = RespLimits::default();
    limits.idle_timeout = Duration::from_secs(10);
    let listening = listen(server().0, limits).await;
    let mut silent = listening.connect().await;
    silent.pong().await;
    // A connection in the middle of a command is idle too.
    silent.send(b"*1\r\n$4\r\nPI").await;
    pause();
    let begun = Instant::now();
    assert_eq!(silent.read_until_closed().await, "");
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(9), "{waited:?}");
    assert!(waited < Duration::from_secs(21), "{waited:?}");
}

#[tokio::test]
async fn stopping_answers_received_commands_and_does_not_wait_for_idle_connections() {
    let listening = listen(server().0, RespLimits::default()).await;
    let (mut idle, mut half) = (listening.connect().await, listening.connect().await);
    idle.pong().await;
    half.pong().await;
    half.send(b"*1\r\n$4\r\nPI").await;
    let address = listening.address;
    assert_eq!(listening.stop().await, DrainOutcome { aborted: 0 });
    assert_eq!(idle.read_until_closed().await, "");
    assert_eq!(half.read_until_closed().await, "");
    let refused = tokio::net::TcpStream::connect(address).await;
    assert_eq!(
        refused.unwrap_err().kind(),
        std::io::ErrorKind::ConnectionRefused
    );
}

#[tokio::test]
async fn a_panic_costs_one_connection_and_nothing_else() {
    struct Fragile(AtomicBool);
    impl Clock for Fragile {
        fn now(&self) -> Timestamp {
            assert!(
                !self.0.load(Ordering::SeqCst),
                "the clock broke, as this test wants"
            );
            NOW
        }
    }
    let clock = std::sync::Arc::new(Fragile(AtomicBool::new(false)));
    let store = MemoryStore::with_clock(1_000, std::sync::Arc::clone(&clock)).unwrap();
    let listening = listen(RespServer::new(store).unwrap(), RespLimits::default()).await;
    let (mut one, mut two) = (listening.connect().await, listening.connect().await);
    two.pong().await;
    clock.0.store(true, Ordering::SeqCst);
    one.send(b"CL.THROTTLE k 0 1 60\r\n").await;
    assert_eq!(one.read_until_closed().await, "");
    clock.0.store(false, Ordering::SeqCst);
    two.send(b"CL.THROTTLE k 0 1 60\r\n").await;
    two.expect("*5\r\n:0\r\n:1\r\n:0\r\n:-1\r\n:60\r\n").await;
    assert_eq!(listening.server.counters().panics(), 1);
    assert_eq!(listening.stop().await, DrainOutcome { aborted: 0 });
}
