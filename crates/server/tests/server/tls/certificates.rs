//! Certificates: trust in clients, files that change, and expiry.

use super::*;

#[tokio::test]
async fn clients_without_a_trusted_certificate_are_refused() {
    let secure = TlsServer::start("mutual", true, ListenerLimits::default()).await;
    let stranger = CertificateAuthority::new("ours").client("alice");
    for (address, request) in [(secure.http, GET), (secure.redis, b"PING\r\nQUIT\r\n")] {
        for shows in [
            None,
            Some(&stranger),
            Some(&secure.authority.server("server")),
        ] {
            // In TLS 1.3 a client completes its handshake before it learns that its certificate was rejected.
            let refused = match secure.connect(address, shows).await {
                Ok(mut client) => exchange(&mut client, request).await,
                Err(error) => Err(error),
            };
            assert!(refused.is_err(), "{refused:?}");
        }
        let ours = secure.authority.client("alice");
        let mut client = secure.connect(address, Some(&ours)).await.unwrap();
        assert!(exchange(&mut client, request).await.unwrap().contains("OK"));
    }
    assert_eq!(secure.app.counters().failed_handshakes(), 3);
    assert_eq!(secure.resp.counters().failed_handshakes(), 3);
}

#[tokio::test]
async fn changed_files_apply_to_new_connections_and_open_ones_stay() {
    let secure = TlsServer::start("reload", true, ListenerLimits::default()).await;
    let alice = secure.authority.client("alice");
    let mut open = secure.connect(secure.redis, Some(&alice)).await.unwrap();
    let first = shown_by_server(&open);

    // Another certificate, and other authorities of clients.
    let others = CertificateAuthority::new("others");
    write(&secure.folder, &secure.authority.server("second"));
    std::fs::write(secure.folder.join("ca.pem"), others.pem()).unwrap();
    assert_eq!(
        secure.tls.reload_if_changed(SystemClock::new().now()),
        TlsReload::Reloaded
    );
    let bob = others.client("bob");
    let mut new = secure.connect(secure.redis, Some(&bob)).await.unwrap();
    let second = shown_by_server(&new);
    assert_ne!(first, second);
    assert_eq!(
        exchange(&mut new, b"PING\r\nQUIT\r\n").await.unwrap(),
        "+PONG\r\n+OK\r\n"
    );
    let mut late = secure.connect(secure.redis, Some(&alice)).await.unwrap();
    assert!(
        exchange(&mut late, b"PING\r\nQUIT\r\n").await.is_err(),
        "no longer trusted"
    );
    assert_eq!(
        exchange(&mut open, b"PING\r\nQUIT\r\n").await.unwrap(),
        "+PONG\r\n+OK\r\n"
    );

    // A mismatched pair changes nothing.
    std::fs::write(secure.folder.join("key.pem"), alice.key).unwrap();
    assert_eq!(
        secure.tls.reload_if_changed(SystemClock::new().now()),
        TlsReload::Rejected
    );
    let still = secure.connect(secure.redis, Some(&bob)).await.unwrap();
    assert_eq!(shown_by_server(&still), second);
}

/// An expired certificate stops all clients at once, so its expiry is a metric.
#[tokio::test]
async fn the_expiry_of_the_certificate_is_a_metric() {
    let secure = TlsServer::start("metric", false, ListenerLimits::default()).await;
    let place = "127.0.0.1:0".parse().unwrap();
    let admin = AdminApi::new(Arc::clone(&secure.app), &place, AdminTokens::default()).unwrap();
    let admin = Arc::new(admin.with_tls(Some(Arc::clone(&secure.tls))));
    let listener = Listener::bind(&place).await.unwrap().unwrap();
    let LocalEndpoint::Tcp(address) = listener.local_endpoint().unwrap() else {
        panic!("a port was asked for");
    };
    let (stop, stopping) = ShutdownTrigger::new();
    let mut running = JoinSet::new();
    running.spawn(admin.run(listener, HttpLimits::default(), stopping.wait()));
    let mut client = HttpClient::to(address).await;
    client
        .send("GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
        .await;
    let page = client.read_response(false).await.body;
    let expires = secure.tls.expires();
    assert!(expires > 1_700_000_000, "{expires}");
    for line in [
        format!("\ntollgate_tls_certificate_expires_timestamp_seconds {expires}\n"),
        "\ntollgate_tls_reloads_total{outcome=\"loaded\"} 1\n".to_owned(),
        "\ntollgate_tls_reloads_total{outcome=\"refused\"} 0\n".to_owned(),
        "\ntollgate_failed_handshakes_total{listener=\"api\"} 0\n".to_owned(),
    ] {
        assert!(page.contains(&line), "{line}{page}");
    }
    stop.trigger();
    assert_eq!(
        running.join_next().await.unwrap().unwrap(),
        DrainOutcome { aborted: 0 }
    );
}
