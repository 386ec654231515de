//! Servers behind the layer on loopback, and clients that are not ours or do not behave.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use axum::routing::get as route;
use http::StatusCode;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tower::service_fn;
use tower_layer::Layer as _;

use super::support::{layer, text};
use crate::TollgateLayer;

async fn listen() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// h2load sends 10 requests at a time on each of 20 connections: exactly the limit is admitted by hyper over HTTP/2.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn h2load_gets_exactly_the_limit_from_hyper() {
    let (layer, _clock) = layer("limits: [{ name: all, rate: 50/h }]");
    let service = layer.layer(service_fn(|_| async { Ok::<_, Infallible>(text("hello")) }));
    let (listener, address) = listen().await;
    let mut connections = JoinSet::new();
    let serve = async {
        loop {
            let (stream, _) = listener.accept().await.unwrap();
            let service = TowerToHyperService::new(service.clone());
            connections.spawn(async move {
                let server = auto::Builder::new(TokioExecutor::new());
                // A client that closes its connection is not an error here.
                let _closed = server.serve_connection(TokioIo::new(stream), service).await;
            });
        }
    };
    let url = format!("http://{address}/");
    let load = Command::new("h2load")
        .args(["-n2000", "-c20", "-m10", &url])
        .output();
    let output = tokio::select! {
        () = serve => unreachable!("it accepts for ever"),
        output = timeout(Duration::from_secs(60), load) => output.unwrap(),
    };
    let output = output.expect("h2load is missing; install it: apt-get install nghttp2-client");
    let printed = String::from_utf8(output.stdout).unwrap();
    let expected = "status codes: 50 2xx, 0 3xx, 1950 4xx, 0 5xx";
    assert!(printed.contains(expected), "{printed}");
}

/// Counts the requests at work, and the most at a time.
#[derive(Clone, Default)]
struct Gauge(Arc<(AtomicUsize, AtomicUsize)>);

struct Working(Gauge);

impl Gauge {
    fn enter(&self) -> Working {
        let now = self.0.0.fetch_add(1, Ordering::SeqCst) + 1;
        self.0.1.fetch_max(now, Ordering::SeqCst);
        Working(self.clone())
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        self.0.0.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "an upgraded stream outlives its handler"
)]
async fn upgrade(gauge: Gauge, mut request: Request) -> Response {
    let on_upgrade = hyper::upgrade::on(&mut request);
    let working = gauge.enter();
    let stream = tokio::task::spawn(async move {
        if let Ok(upgraded) = on_upgrade.await {
            let mut stream = TokioIo::new(upgraded);
            let mut rest = Vec::new();
            // Until the client closes it.
            let _read = stream.read_to_end(&mut rest).await;
            // Before the stream, which releases its permit.
            drop(working);
        }
    });
    drop(stream);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert("connection", "upgrade".parse().unwrap());
    headers.insert("upgrade", "echo".parse().unwrap());
    response
}

fn app(layer: TollgateLayer, gauge: &Gauge) -> Router {
    let (plain, panics, upgrades) = (gauge.clone(), gauge.clone(), gauge.clone());
    let plain = route(move || async move {
        let working = plain.enter();
        tokio::task::yield_now().await;
        drop(working);
        "hello"
    });
    let panics = route(move || async move {
        let _working = panics.enter();
        tokio::task::yield_now().await;
        assert!(std::hint::black_box(false), "this handler panics");
    });
    let upgrades = route(move |request| upgrade(upgrades, request));
    Router::new()
        .route("/", plain)
        .route("/panic", panics)
        .route("/upgrade", upgrades)
        .layer(layer)
}

/// A client that reads everything, leaves at once, leaves after the head, meets a panic, or upgrades and then leaves.
async fn misbehave(address: SocketAddr, kind: usize) {
    let mut stream = TcpStream::connect(address).await.unwrap();
    let path = match kind {
        3 => "/panic",
        4 => "/upgrade",
        _ => "/",
    };
    let close = if matches!(kind, 0 | 3) {
        "close"
    } else {
        "upgrade"
    };
    let head =
        format!("GET {path} HTTP/1.1\r\nhost: a\r\nconnection: {close}\r\nupgrade: echo\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut some = [0; 64];
    match kind {
        1 => {}
        2 | 4 => drop(stream.read(&mut some).await),
        _ => drop(stream.read_to_end(&mut Vec::new()).await),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn i14_permits_are_never_above_the_cap_whatever_clients_and_handlers_do() {
    let layer = TollgateLayer::from_policy("limits: [{ name: few, concurrency: 3 }]").unwrap();
    let gauge = Gauge::default();
    let app = app(layer.clone(), &gauge);
    let (listener, address) = listen().await;
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await });
    let mut clients = JoinSet::new();
    for number in 0..400 {
        clients.spawn(misbehave(address, number % 5));
    }
    let all = async { while clients.join_next().await.is_some() {} };
    timeout(Duration::from_secs(30), all).await.unwrap();
    let released = async {
        while layer.rate_limit_service().held_permits().0 > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(30), released).await.unwrap();
    assert_eq!(gauge.0.0.load(Ordering::SeqCst), 0, "all have ended");
    let most = gauge.0.1.load(Ordering::SeqCst);
    assert!((1..=3).contains(&most), "{most} at a time");
}

/// The measure above finds a limit that is not enforced.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_limit_more_are_at_work() {
    let layer = TollgateLayer::from_policy("limits: [{ name: few, concurrency: 3, mode: shadow }]")
        .unwrap();
    let gauge = Gauge::default();
    let app = app(layer, &gauge);
    let (listener, address) = listen().await;
    let mut server = JoinSet::new();
    server.spawn(async move { axum::serve(listener, app).await });
    let mut streams = Vec::new();
    for _ in 0..5 {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head =
            "GET /upgrade HTTP/1.1\r\nhost: a\r\nconnection: upgrade\r\nupgrade: echo\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut some = [0; 12];
        timeout(Duration::from_secs(30), stream.read_exact(&mut some))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(&some, b"HTTP/1.1 101");
        streams.push(stream);
    }
    assert_eq!(gauge.0.1.load(Ordering::SeqCst), 5);
}
