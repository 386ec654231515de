//! Handshakes that never end.

use super::*;

#[tokio::test]
async fn an_endless_handshake_times_out_after_five_seconds_and_delays_no_client() {
    let secure = TlsServer::start("slow", false, ListenerLimits::default()).await;
    let mut slow = TcpStream::connect(secure.http).await.unwrap();
    // The start of a ClientHello.
    slow.write_all(&[0x16, 3, 1]).await.unwrap();
    let mut client = secure.connect(secure.http, None).await.unwrap();
    assert!(
        exchange(&mut client, GET)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    // A later client was served, so the server is waiting for the slow one.
    pause();
    let begun = Instant::now();
    let mut rest = Vec::new();
    let ended = timeout(DEADLINE, slow.read_to_end(&mut rest))
        .await
        .unwrap();
    assert!(rest.is_empty(), "{ended:?} {rest:?}");
    let waited = begun.elapsed();
    assert!(waited > Duration::from_secs(3), "{waited:?}");
    assert!(waited < Duration::from_secs(6), "{waited:?}");
    assert_eq!(secure.app.counters().failed_handshakes(), 1);
}

#[tokio::test]
async fn stopping_does_not_wait_for_handshakes() {
    let secure = TlsServer::start("stopping", false, ListenerLimits::default()).await;
    let _silent = TcpStream::connect(secure.http).await.unwrap();
    let mut client = secure.connect(secure.http, None).await.unwrap();
    assert!(
        exchange(&mut client, GET)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    assert_eq!(secure.stop().await, 0);
}

/// Half-open handshakes filled the listener for five seconds each and kept everybody else out.
#[tokio::test]
async fn half_open_handshakes_give_way_to_new_connections() {
    let mut bounds = ListenerLimits::default();
    bounds.max_connections = 8;
    let secure = TlsServer::start("half-open", false, bounds).await;
    let mut half_open = Vec::new();
    for _ in 0..64 {
        let mut slow = TcpStream::connect(secure.http).await.unwrap();
        // The start of a ClientHello. The server may have closed the connection for a newer one.
        let _sent = slow.write_all(&[0x16, 3, 1]).await.is_ok();
        half_open.push(slow);
    }
    let mut client = secure.connect(secure.http, None).await.unwrap();
    let answer = exchange(&mut client, GET).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let counters = secure.app.counters();
    assert_eq!(counters.refused_connections(), 0);
    assert_eq!(counters.evicted_connections(), 64 + 1 - 8);
}
