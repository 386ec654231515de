//! TLS connections: every protocol, clients with a wrong certificate or none, files that change, and handshakes that never end.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::{Instant, pause, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tollgate_core::Timestamp;
use tollgate_server::admin::{AdminApi, AdminTokens};
use tollgate_server::listen::{
    ApplicationProtocol, ConnectionHandler, DrainOutcome, Listener, ListenerLimits, LocalEndpoint,
    Peer, ServerTls, ShutdownSignal, ShutdownTrigger, Stream, TlsFiles, TlsReload, accept,
};
use tollgate_server::resp::{RespLimits, RespServer};
use tollgate_server::{App, HttpLimits, ListenerCounters};
use tollgate_store::{Clock as _, ManualClock, MemoryStore, SystemClock};
use tollgate_testkit::certificates::{Authority, Pair};

use crate::harness::{HttpClient, policy};

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

const GET: &[u8] = b"GET /v1/check?key=a HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";

/// Listeners of both protocols, and the files of their certificate.
struct TlsServer {
    folder: PathBuf,
    authority: Authority,
    tls: Arc<ServerTls>,
    http: SocketAddr,
    redis: SocketAddr,
    app: Arc<App<ManualClock>>,
    resp: Arc<RespServer<ManualClock>>,
    stop: ShutdownTrigger,
    listeners: JoinSet<DrainOutcome>,
}

impl TlsServer {
    async fn start(name: &str, is_mutual: bool, bounds: ListenerLimits) -> Self {
        let folder = format!("tollgate-server-tls-{}-{name}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        std::fs::create_dir_all(&folder).unwrap();
        let authority = Authority::new("ours");
        write(&folder, &authority.server("first"));
        std::fs::write(folder.join("ca.pem"), authority.pem()).unwrap();
        let files = TlsFiles {
            certificate: folder.join("cert.pem"),
            key: folder.join("key.pem"),
            client_authorities: is_mutual.then(|| folder.join("ca.pem")),
        };
        let tls = Arc::new(ServerTls::open(files, SystemClock::new().now()).unwrap());
        let (stop, stopping) = ShutdownTrigger::new();
        let mut listeners = JoinSet::new();

        let text = "limits: [{ name: demo, key: header.x-api-key, rate: 10/s, burst: 20 }]";
        let clock = || ManualClock::at(Timestamp::from_secs(1_700_000_000));
        let app = Arc::new(App::new(&policy(text), 1_000, clock()).unwrap());
        let (listener, http) = free(&tls, ApplicationProtocol::Http1).await;
        let mut limits = HttpLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));

        let store = MemoryStore::with_clock(1_000, clock()).unwrap();
        let resp = Arc::new(RespServer::new(store).unwrap());
        let (listener, redis) = free(&tls, ApplicationProtocol::Redis).await;
        let mut limits = RespLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
        Self {
            folder,
            authority,
            tls,
            http,
            redis,
            app,
            resp,
            stop,
            listeners,
        }
    }

    /// Connects a client that trusts our authority and presents a certificate if it has one.
    async fn connect(
        &self,
        address: SocketAddr,
        shows: Option<&Pair>,
    ) -> io::Result<TlsStream<TcpStream>> {
        connect(&self.authority, address, shows, &["http/1.1"]).await
    }

    async fn stop(mut self) -> usize {
        self.stop.trigger();
        let mut cut = 0;
        while let Some(ended) = timeout(DEADLINE, self.listeners.join_next()).await.unwrap() {
            cut += ended.unwrap().aborted;
        }
        cut
    }
}

impl Drop for TlsServer {
    fn drop(&mut self) {
        std::fs::remove_dir_all(&self.folder).unwrap();
    }
}

async fn free(tls: &Arc<ServerTls>, spoken: ApplicationProtocol) -> (Listener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (
        Listener::from(listener).with_tls(tls.for_protocol(spoken)),
        address,
    )
}

fn write(folder: &std::path::Path, pair: &Pair) {
    std::fs::write(folder.join("cert.pem"), &pair.certificate).unwrap();
    std::fs::write(folder.join("key.pem"), &pair.key).unwrap();
}

async fn connect(
    authority: &Authority,
    address: SocketAddr,
    shows: Option<&Pair>,
    alpn: &[&str],
) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    let root = CertificateDer::from_pem_slice(authority.pem().as_bytes()).unwrap();
    roots.add(root).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots);
    let mut config = match shows {
        None => builder.with_no_client_auth(),
        Some(Pair { certificate, key }) => {
            let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap()];
            let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
            builder.with_client_auth_cert(chain, key).unwrap()
        }
    };
    config.alpn_protocols = alpn.iter().map(|name| name.as_bytes().to_vec()).collect();
    let stream = TcpStream::connect(address).await?;
    let name = ServerName::try_from("localhost").unwrap();
    let handshake = TlsConnector::from(Arc::new(config)).connect(name, stream);
    timeout(DEADLINE, handshake).await.unwrap()
}

/// Sends bytes and reads until the end.
async fn ask(stream: &mut TlsStream<TcpStream>, bytes: &[u8]) -> io::Result<String> {
    stream.write_all(bytes).await?;
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer))
        .await
        .unwrap()?;
    Ok(String::from_utf8(answer).unwrap())
}

fn shown_by_server(stream: &TlsStream<TcpStream>) -> Vec<u8> {
    stream.get_ref().1.peer_certificates().unwrap()[0].to_vec()
}

#[tokio::test]
async fn http_and_redis_clients_are_answered_inside_tls() {
    let secure = TlsServer::start("both", false, ListenerLimits::default()).await;
    let mut client = secure.connect(secure.http, None).await.unwrap();
    assert_eq!(client.get_ref().1.alpn_protocol(), Some(&b"http/1.1"[..]));
    let answer = ask(&mut client, GET).await.unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let mut client = secure.connect(secure.http, None).await.unwrap();
    let front = b"GET / HTTP/1.1\r\nhost: test\r\nconnection: close\r\n\r\n";
    let answer = ask(&mut client, front).await.unwrap();
    assert!(
        answer.contains(&format!("https://{}/v1/check", secure.http)),
        "{answer}"
    );

    let mut client = connect(&secure.authority, secure.redis, None, &[])
        .await
        .unwrap();
    // More than one TLS record, both ways.
    let many = b"CL.THROTTLE user 15 30 60\r\n".repeat(2_000);
    let answer = ask(&mut client, &[many.as_slice(), b"QUIT\r\n"].concat())
        .await
        .unwrap();
    assert_eq!(answer.matches("*5\r\n:0\r\n").count(), 16);
    assert_eq!(answer.matches("*5\r\n:1\r\n").count(), 1_984);
    assert!(answer.ends_with("+OK\r\n"));
    assert_eq!(secure.stop().await, 0);
}

#[tokio::test]
async fn clients_without_a_trusted_certificate_are_refused() {
    let secure = TlsServer::start("mutual", true, ListenerLimits::default()).await;
    let stranger = Authority::new("ours").client("alice");
    for (address, question) in [(secure.http, GET), (secure.redis, b"PING\r\nQUIT\r\n")] {
        for shows in [
            None,
            Some(&stranger),
            Some(&secure.authority.server("server")),
        ] {
            // In TLS 1.3 a client completes its handshake before it learns that its certificate was rejected.
            let refused = match secure.connect(address, shows).await {
                Ok(mut client) => ask(&mut client, question).await,
                Err(error) => Err(error),
            };
            assert!(refused.is_err(), "{refused:?}");
        }
        let ours = secure.authority.client("alice");
        let mut client = secure.connect(address, Some(&ours)).await.unwrap();
        assert!(ask(&mut client, question).await.unwrap().contains("OK"));
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
    let others = Authority::new("others");
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
        ask(&mut new, b"PING\r\nQUIT\r\n").await.unwrap(),
        "+PONG\r\n+OK\r\n"
    );
    let mut late = secure.connect(secure.redis, Some(&alice)).await.unwrap();
    assert!(
        ask(&mut late, b"PING\r\nQUIT\r\n").await.is_err(),
        "no longer trusted"
    );
    assert_eq!(
        ask(&mut open, b"PING\r\nQUIT\r\n").await.unwrap(),
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

#[tokio::test]
async fn an_endless_handshake_times_out_after_five_seconds_and_delays_no_client() {
    let secure = TlsServer::start("slow", false, ListenerLimits::default()).await;
    let mut slow = TcpStream::connect(secure.http).await.unwrap();
    // The start of a ClientHello.
    slow.write_all(&[0x16, 3, 1]).await.unwrap();
    let mut client = secure.connect(secure.http, None).await.unwrap();
    assert!(
        ask(&mut client, GET)
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
        ask(&mut client, GET)
            .await
            .unwrap()
            .starts_with("HTTP/1.1 200 OK\r\n")
    );
    assert_eq!(secure.stop().await, 0);
}

#[tokio::test]
async fn a_client_without_tls_is_closed_and_counted_and_gets_no_plain_text() {
    let mut bounds = ListenerLimits::default();
    bounds.max_connections = 1;
    let secure = TlsServer::start("plain", false, bounds).await;
    for question in [GET, b"PING\r\n".as_slice(), &[0; 600]] {
        let mut plain = TcpStream::connect(secure.redis).await.unwrap();
        plain.write_all(question).await.unwrap();
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
    let first = connect(&secure.authority, secure.redis, None, &[])
        .await
        .unwrap();
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
    let mut heard = [0; 3];
    client.read_exact(&mut heard).await.unwrap();
    assert_eq!(&heard, b"PRI");
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
