//! The protocols inside TLS, and clients without TLS.

use super::*;

#[tokio::test]
async fn http_and_redis_clients_are_answered_inside_tls() {
    let secure = TlsServer::start("both", false, ListenerLimits::default()).await;
    let mut client = secure.connect(secure.http, None).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = exchange(&mut client, GET).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut client = secure.connect(secure.http, None).await.unwrap();
    let front = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answer = exchange(&mut client, front).await.unwrap();
    assert!(
        answer.contains(&format!("https://{}/v1/check", secure.http)),
        "{answer}"
    );

    let mut client = connect(&secure.authority, secure.redis, None, &[])
        .await
        .unwrap();
    // More than one TLS record, both ways.
    let many = b"CL.THROTTLE user 15 30 60\r\n".repeat(2_000);
    let answer = exchange(&mut client, &[many.as_slice(), b"QUIT\r\n"].concat())
        .await
        .unwrap();
    assert_eq!(answer.matches("*5\r\n:0\r\n").count(), 16);
    assert_eq!(answer.matches("*5\r\n:1\r\n").count(), 1_984);
    assert!(answer.ends_with("+OK\r\n"));
    assert_eq!(secure.stop().await, 0);
}

#[tokio::test]
async fn a_client_without_tls_is_closed_and_counted_and_gets_no_plain_text() {
    let mut bounds = ListenerLimits::default();
    bounds.max_connections = 1;
    let secure = TlsServer::start("plain", false, bounds).await;
    for bytes in [GET, b"PING\r\n".as_slice(), &[0; 600]] {
        let mut plain = TcpStream::connect(secure.redis).await.unwrap();
        plain.write_all(bytes).await.unwrap();
        let mut answer = Vec::new();
        // The close may be a reset, because not all bytes were read.
        let _ended = timeout(DEADLINE, plain.read_to_end(&mut answer))
            .await
            .unwrap()
            .is_ok();
        // At most a TLS alert, which starts like this.
        assert!(
            answer.is_empty() || answer.starts_with(&[0x15, 3]),
            "{answer:?}"
        );
    }
    assert_eq!(secure.resp.counters().failed_handshakes(), 3);
    let mut first = connect(&secure.authority, secure.redis, None, &[])
        .await
        .unwrap();
    // A connection without a command would give way.
    first.write_all(b"PING\r\n").await.unwrap();
    let mut pong = [0; 7];
    first.read_exact(&mut pong).await.unwrap();
    assert_eq!(pong, *b"+PONG\r\n");
    let mut second = TcpStream::connect(secure.redis).await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, second.read_to_end(&mut answer))
        .await
        .unwrap()
        .unwrap();
    assert!(answer.is_empty(), "no room, and no way to say so");
    assert_eq!(secure.resp.counters().refused_connections(), 1);
    drop(first);
}

/// Echoes bytes.
#[derive(Default)]
struct Echo(ListenerCounters);

async fn echo(mut stream: Stream) {
    let mut buffer = [0; 64];
    while let Ok(count @ 1..) = stream.read(&mut buffer).await {
        stream.write_all(&buffer[..count]).await.unwrap();
        stream.flush().await.unwrap();
    }
}

impl ConnectionHandler for Echo {
    fn serve(
        &self,
        stream: Stream,
        _: Peer,
        _: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static {
        echo(stream)
    }

    fn counters(&self) -> &ListenerCounters {
        &self.0
    }
}

#[tokio::test]
async fn a_listener_for_http2_names_it_and_nothing_else() {
    let secure = TlsServer::start("http2", false, ListenerLimits::default()).await;
    let (listener, address) = free(&secure.tls, ApplicationProtocol::Http2).await;
    let (stop, stopping) = ShutdownTrigger::new();
    let mut running = JoinSet::new();
    let echo = Arc::new(Echo::default());
    let wait = stopping.wait();
    running.spawn(accept(
        listener,
        Arc::clone(&echo),
        ListenerLimits::default(),
        wait,
    ));
    let offers = ["h2", "http/1.1"];
    let mut client = connect(&secure.authority, address, None, &offers)
        .await
        .unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"h2"[..]));
    client.write_all(b"PRI").await.unwrap();
    let mut received = [0; 3];
    client.read_exact(&mut received).await.unwrap();
    assert_eq!(&received, b"PRI");
    drop(client);
    assert!(
        connect(&secure.authority, address, None, &["http/1.1"])
            .await
            .is_err()
    );
    stop.trigger();
    assert_eq!(running.join_next().await.unwrap().unwrap().aborted, 0);
    assert_eq!(echo.0.failed_handshakes(), 1);
}
