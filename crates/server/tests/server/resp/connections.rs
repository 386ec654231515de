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

/// A wrong password was answered at once, as often as a client liked, and nobody could see it.
#[tokio::test]
async fn wrong_passwords_are_slowed_and_counted_and_the_right_one_is_not() {
    let wrong = "-WRONGPASS invalid username-password pair or user is disabled.\r\n";
    let (server, _clock) = server();
    let listening = listen(server.with_password("secret"), RespLimits::default()).await;
    let mut guesser = listening.connect().await;
    for _ in 0..5 {
        guesser
            .send(b"AUTH guess\r\nHELLO 2 AUTH default guess\r\n")
            .await;
        guesser.expect(wrong).await;
        guesser.expect(wrong).await;
    }
    // The next answer is delayed, and so are the commands behind it.
    guesser.send(b"AUTH guess\r\nAUTH secret\r\nPING\r\n").await;
    let right = async {
        let mut client = listening.connect().await;
        client.send(b"AUTH secret\r\nPING\r\n").await;
        client.expect("+OK\r\n+PONG\r\n").await;
    };
    tokio::select! {
        biased;
        () = guesser.expect(wrong) => panic!("a wrong password was answered first"),
        () = right => {}
    }
    assert_eq!(listening.server.counters().auth_failures(), 11);

    // Answers that are delayed hold connections, so their number is bounded. Further ones end their connection.
    let mut guessers = Vec::new();
    for _ in 0..200 {
        let mut guesser = listening.connect().await;
        guesser.send(b"AUTH guess\r\nAUTH guess\r\nQUIT\r\n").await;
        guessers.push(guesser);
    }
    let mut client = listening.connect().await;
    client.send(b"AUTH secret\r\n").await;
    client.expect("+OK\r\n").await;
    let mut ended = 0;
    for guesser in &mut guessers {
        let answers = guesser.read_until_closed().await;
        assert!(answers.starts_with(wrong), "{answers}");
        ended += usize::from(answers == wrong);
    }
    assert!(ended > 0, "no connection was ended");
}

/// Connections that never send the password once filled the listener for as long as they liked.
#[tokio::test]
async fn connections_without_the_password_give_way() {
    let mut limits = RespLimits::default();
    limits.listener.max_connections = 64;
    let listening = listen(server().0.with_password("secret"), limits).await;
    let mut first = listening.connect().await;
    first.send(b"AUTH secret\r\n").await;
    first.expect("+OK\r\n").await;
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        let mut client = listening.connect().await;
        client.send(b"PING\r\n").await;
        silent.push(client);
    }
    let mut late = listening.connect().await;
    late.send(b"AUTH secret\r\n").await;
    late.expect("+OK\r\n").await;
    late.pong().await;
    first.pong().await;
    assert_eq!(listening.server.counters().refused_connections(), 0);
}
