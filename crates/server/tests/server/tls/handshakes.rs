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
