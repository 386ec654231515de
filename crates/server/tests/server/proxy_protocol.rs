//! The PROXY protocol before HTTP: who the peer is, and which connections are served.

use std::sync::Arc;

use tollgate_core::Timestamp;
use tollgate_server::{HttpApi, HttpLimits, TrustedProxies};
use tollgate_store::ManualClock;

use crate::harness::{HttpClient, policy};
use crate::running_server::RunningServer;

const POLICY: &str = "limits: [{ name: per-address, key: ip, rate: 1/h }]";

/// A request of nginx about a client.
fn nginx_request(client: &str) -> String {
    format!(
        "GET /auth/nginx HTTP/1.1\r\nhost: a\r\nx-original-method: GET\r\nx-original-uri: /\r\n\
         x-original-host: a.example\r\nx-real-ip: {client}\r\nconnection: close\r\n\r\n"
    )
}

/// A header of version 2 for an IPv4 client.
fn v2(client: [u8; 4]) -> Vec<u8> {
    let [a, b, c, d] = client;
    let fixed = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c";
    [
        &fixed[..],
        &[a, b, c, d, 198, 51, 100, 1, 0x30, 0x39, 1, 0xbb],
    ]
    .concat()
}

/// A server that trusts gateways of 10.0.0.0/8, and the headers of proxies at these addresses.
async fn serve(proxies: &str) -> (RunningServer, Arc<HttpApi<Arc<ManualClock>>>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
    let app = HttpApi::new(&policy(POLICY), 1_000, clock).unwrap();
    let app = Arc::new(app.with_trusted_proxies("10.0.0.0/8".parse().unwrap()));
    let (serving, proxies) = (Arc::clone(&app), proxies.parse::<TrustedProxies>().unwrap());
    let running = RunningServer::start(|listener, shutdown| {
        let listener = listener.with_proxy_protocol(proxies);
        serving.run(listener, HttpLimits::default(), shutdown)
    });
    (running.await, app)
}

/// The status of a response, or `None` if the server closes the connection.
async fn status(server: &RunningServer, header: &[u8], request: &str) -> Option<u16> {
    let mut client = HttpClient::to(server.address).await;
    let sent = [header, request.as_bytes()].concat();
    client.send(&sent).await;
    let reply = client.read_until_closed().await;
    let status = reply.strip_prefix(b"HTTP/1.1 ")?.get(..3)?;
    std::str::from_utf8(status).unwrap().parse().ok()
}

#[tokio::test]
async fn the_peer_is_the_one_that_the_proxy_names() {
    let (server, app) = serve("127.0.0.0/8").await;
    let named = |text: &str| format!("PROXY TCP4 {text} 198.51.100.1 12345 443\r\n").into_bytes();
    // A gateway behind the load balancer is trusted by its own address, not by that of the balancer.
    let ask = nginx_request("192.0.2.7");
    assert_eq!(status(&server, &named("10.1.1.1"), &ask).await, Some(204));
    assert_eq!(
        status(&server, &v2([10, 1, 1, 1]), &ask).await,
        Some(403),
        "over the limit"
    );
    assert_eq!(
        status(&server, &named("192.0.2.9"), &ask).await,
        Some(421),
        "no gateway"
    );
    let unknown = b"PROXY UNKNOWN\r\n";
    assert_eq!(
        status(&server, unknown, &ask).await,
        Some(421),
        "the balancer itself is no gateway"
    );
    assert_eq!(app.counters().failed_handshakes(), 0);
    for wrong in [&b""[..], b"PROXY TCP4 nobody 198.51.100.1 1 2\r\n"] {
        assert_eq!(status(&server, wrong, &ask).await, None);
    }
    assert_eq!(app.counters().failed_handshakes(), 2);
    server.stop().await;
}

#[tokio::test]
async fn connections_of_other_addresses_are_closed() {
    let (server, app) = serve("10.0.0.0/8").await;
    assert_eq!(
        status(&server, &v2([10, 1, 1, 1]), &nginx_request("192.0.2.7")).await,
        None
    );
    assert_eq!(app.counters().failed_handshakes(), 1);
    server.stop().await;
}
