//! Hostile clients: each is answered or disconnected, and buffers stay bounded.

use std::sync::Arc;
use std::time::Duration;

use tollgate_server::listen::BufferBudget;
use tollgate_server::resp::{MAX_INLINE_LEN, RespLimits};

use super::{InMemoryClient, command, listen, server};
use crate::buffer_budget::until_used;

#[tokio::test]
async fn protocol_errors_are_named_and_close_the_connection() {
    let listening = listen(server().0, RespLimits::default()).await;
    let endless = "x".repeat(MAX_INLINE_LEN);
    let large = format!(
        "*3\r\n{}",
        format!("$65536\r\n{}\r\n", "x".repeat(65_536)).repeat(3)
    );
    let cases: [(&str, &str); 12] = [
        ("*1000000000\r\n", "invalid multibulk length"),
        ("*99999999999999999999999\r\n", "invalid multibulk length"),
        ("*1\r\n$1000000000\r\n", "invalid bulk length"),
        ("*1\r\n$-5\r\n", "invalid bulk length"),
        ("*1\r\n$\r\n", "invalid bulk length"),
        ("*2\r\n*1\r\n$4\r\nPING\r\n", "expected '$', got '*'"),
        ("*1\r\n+PING\r\n", "expected '$', got '+'"),
        ("*1\r\n\u{1}", "expected '$', got '?'"),
        ("*1\r\n$1\r\nPING\r\n", "expected CRLF after a bulk string"),
        ("PING \"\r\n", "unbalanced quotes in request"),
        (&endless, "too big inline request"),
        (&large, "too big command"),
    ];
    for (bytes, error) in cases {
        let mut client = listening.connect().await;
        client.pong().await;
        client.send(bytes.as_bytes()).await;
        let expected = format!("-ERR Protocol error: {error}\r\n");
        assert_eq!(client.read_until_closed().await, expected);
    }
    listening.connect().await.pong().await;
}

#[tokio::test]
async fn commands_before_a_protocol_error_are_answered() {
    let listening = listen(server().0, RespLimits::default()).await;
    let mut client = listening.connect().await;
    client.send(b"PING\r\nPING\r\n*x\r\nPING\r\n").await;
    let expected = "+PONG\r\n+PONG\r\n-ERR Protocol error: invalid multibulk length\r\n";
    assert_eq!(client.read_until_closed().await, expected);
}

/// A web page can post to any local port. Nothing after the first line may be run as a command.
#[test]
fn requests_of_browsers_end_the_connection() {
    for request in [
        "POST / HTTP/1.1\r\nCL.THROTTLE k 0 1 60\r\n",
        "Host: a\r\nCL.THROTTLE k 0 1 60\r\n",
    ] {
        let (server, _clock) = server();
        let mut line = InMemoryClient::new(&server);
        assert_eq!(line.send(request.as_bytes()), b"");
        assert!(line.is_closed);
        assert_eq!(
            InMemoryClient::new(&server).numbers("CL.THROTTLE k 0 1 60")[0],
            0,
            "not charged"
        );
    }
}

/// Short commands with long replies from a client that does not read: the server stops reading instead of buffering replies,
/// and continues later.
#[tokio::test]
async fn a_client_that_does_not_read_is_not_read_from_and_misses_no_reply() {
    let listening = listen(server().0, RespLimits::default()).await;
    let mut client = listening.connect().await;
    let one = {
        let (server, _clock) = server();
        String::from_utf8(InMemoryClient::new(&server).send(b"COMMAND\r\n")).unwrap()
    };
    // About 30 MB of replies.
    let count = 20_000;
    let commands = b"COMMAND\r\n".repeat(count);
    let (mut reader, mut writer) = client.0.split();
    let write = async {
        tokio::io::AsyncWriteExt::write_all(&mut writer, &commands)
            .await
            .unwrap();
    };
    let read = async {
        let mut answer = vec![0; one.len()];
        for _ in 0..count {
            tokio::io::AsyncReadExt::read_exact(&mut reader, &mut answer)
                .await
                .unwrap();
            assert!(answer == one.as_bytes());
        }
    };
    tokio::join!(write, read);
    client.pong().await;
}

#[tokio::test]
async fn arguments_up_to_the_limit_are_served() {
    let listening = listen(server().0, RespLimits::default()).await;
    let mut client = listening.connect().await;
    let word = "w".repeat(65_536);
    for _ in 0..3 {
        client.send(&command(&["ECHO", &word])).await;
        client.expect(&format!("$65536\r\n{word}\r\n")).await;
    }
    let mut many = vec!["NOPE"; 64];
    client.send(&command(&many)).await;
    client
        .expect("-ERR unknown command 'NOPE', with args beginning with: 'NOPE' 'NOPE' 'NOPE' \r\n")
        .await;
    many.push("NOPE");
    client.send(&command(&many)).await;
    assert_eq!(
        client.read_until_closed().await,
        "-ERR Protocol error: invalid multibulk length\r\n"
    );
}

/// Each connection is within its limits; all together are not.
#[tokio::test]
async fn i06_the_buffers_of_all_connections_together_are_bounded() {
    // Three quarters are for large commands.
    let budget = Arc::new(BufferBudget::new(110_000));
    let server = server().0.with_buffers(Arc::clone(&budget));
    let listening = listen(server, RespLimits::default()).await;
    // The whole command but its end.
    let whole = command(&["ECHO", &"w".repeat(40_000)]);
    let (begun, rest) = whole.split_at(39_000);
    let (mut one, mut two) = (listening.connect().await, listening.connect().await);
    for client in [&mut one, &mut two] {
        client.pong().await;
        client.send(begun).await;
    }
    let mut asking = listening.connect().await;
    let held = loop {
        asking.send(b"INFO memory\r\n").await;
        let mut bytes = [0; 256];
        let read = tokio::io::AsyncReadExt::read(&mut asking.0, &mut bytes)
            .await
            .unwrap();
        let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
        let (_, held) = text.split_once("held_bytes:").unwrap();
        let held: usize = held.trim_end().parse().unwrap();
        if held > 39_000 * 2 - 1 {
            break held;
        }
    };
    assert_eq!(held, 78_000);
    let mut three = listening.connect().await;
    three.send(begun).await;
    assert_eq!(
        three.read_until_closed().await,
        "-ERR too many unfinished commands\r\n"
    );
    // Other connections are not closed, and their completed commands are answered.
    one.send(rest).await;
    one.expect("$40000\r\n").await;
    assert_eq!(listening.server.counters().refused_buffers(), 1);
    drop((one, two, three));
    until_used(&budget, |used| used == 0).await;
    asking.pong().await;
}

/// An incomplete command once lived for the idle timeout of five to ten minutes, one byte a minute.
#[tokio::test]
async fn a_large_command_that_does_not_progress_is_dropped() {
    let budget = Arc::new(BufferBudget::default());
    let server = server().0.with_buffers(Arc::clone(&budget));
    let mut limits = RespLimits::default();
    limits.command_timeout = Duration::from_millis(100);
    let listening = listen(server, limits).await;
    let mut small = listening.connect().await;
    small.send(b"*2\r\n$4\r\nECHO\r\n$4000\r\nx").await;
    let mut large = listening.connect().await;
    large.pong().await;
    let whole = command(&["ECHO", &"w".repeat(40_000)]);
    large.send(&whole[..30_000]).await;
    until_used(&budget, |used| used >= 30_000).await;
    assert_eq!(large.read_until_closed().await, "");
    until_used(&budget, |used| used == 0).await;
    // A small one may stay for the idle timeout.
    small.send("x".repeat(3_999).as_bytes()).await;
    small.send(b"\r\n").await;
    small.expect("$4000\r\nx").await;
}
