//! The tower layer: retries what may be retried, and passes on everything else.

use std::convert::Infallible;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use bytes::Bytes;
use http::{Method, Request, Response};
use http_body_util::{BodyExt as _, Full};
use tollgate_core::Nanos;
use tollgate_store::ManualClock;
use tower::util::BoxCloneService;
use tower::{Layer as _, Service as _, service_fn};

use super::support::{NOW, fast, poll_once, seconds};
use crate::{ClientError, Deadline, PaceError, PacerLayer, SharedPacer};

type TestBody = Full<Bytes>;
type TestClient = BoxCloneService<Request<TestBody>, Response<TestBody>, Infallible>;

/// A server that refuses the first requests, and the bodies it received.
#[derive(Clone, Default)]
struct TestServer {
    requests: Arc<AtomicU32>,
    bodies: Arc<Mutex<Vec<Bytes>>>,
}

impl TestServer {
    fn client(&self, refusals: u32, respond: fn() -> Response<TestBody>) -> TestClient {
        let server = self.clone();
        BoxCloneService::new(service_fn(move |request: Request<TestBody>| {
            let server = server.clone();
            async move {
                let body = request.into_body().collect().await?.to_bytes();
                server.bodies.lock().unwrap().push(body);
                let count = server.requests.fetch_add(1, Ordering::Relaxed);
                Ok(if count < refusals {
                    respond()
                } else {
                    Response::new(Full::from("done"))
                })
            }
        }))
    }
}

fn refuse() -> Response<TestBody> {
    let refusal = Response::builder().status(429).header("retry-after", "2");
    refusal.body(Full::from("slow down")).unwrap()
}

fn layer() -> (
    PacerLayer<crate::CloneBody, Arc<ManualClock>>,
    Arc<ManualClock>,
) {
    let clock = Arc::new(ManualClock::at(NOW));
    let pacer = SharedPacer::with_clock(fast(), Arc::clone(&clock));
    (PacerLayer::with_pacer(pacer), clock)
}

fn request(method: Method) -> Request<TestBody> {
    let request = Request::builder()
        .method(method)
        .uri("http://user:secret@api.example.com/a");
    let request = request.header("authorization", "Bearer hunter2");
    request.body(Full::from("body")).unwrap()
}

#[test]
fn a_refused_request_is_sent_again_with_its_body_after_the_wait() {
    let (server, (layer, clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(1, refuse));
    let mut future = Box::pin(client.call(request(Method::PUT)));
    assert!(poll_once(&mut future).is_pending());
    clock.advance(Nanos::from_millis(1_999));
    layer.pacer().tick();
    assert!(poll_once(&mut future).is_pending());
    clock.advance(Nanos::from_millis(1_001));
    layer.pacer().tick();
    let Poll::Ready(Ok(response)) = poll_once(&mut future) else {
        panic!()
    };
    assert_eq!(response.status(), 200);
    assert_eq!(*server.bodies.lock().unwrap(), ["body", "body"]);
}

#[test]
fn methods_that_are_not_idempotent_are_retried_only_if_told() {
    let (server, (layer, _clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(1, refuse));
    let Poll::Ready(Ok(response)) = poll_once(&mut Box::pin(client.call(request(Method::POST))))
    else {
        panic!()
    };
    assert_eq!(response.status(), 429);

    let (server, (layer, clock)) = (TestServer::default(), super::layer::layer());
    let layer = layer.retry_all_methods();
    let mut client = layer.layer(server.client(1, refuse));
    let mut future = Box::pin(client.call(request(Method::POST)));
    assert!(poll_once(&mut future).is_pending());
    clock.advance(Nanos::from_secs(3));
    layer.pacer().tick();
    assert!(
        matches!(poll_once(&mut future), Poll::Ready(Ok(response)) if response.status() == 200)
    );
}

#[test]
fn a_used_up_quota_is_passed_on_with_its_body() {
    let exhausted = || {
        let body = r#"{"error":{"code":"insufficient_quota"}}"#;
        let response = Response::builder()
            .status(429)
            .header("content-type", "application/json");
        response
            .header("content-length", body.len())
            .body(Full::from(body))
            .unwrap()
    };
    let (server, (layer, _clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(9, exhausted));
    let Poll::Ready(Ok(response)) = poll_once(&mut Box::pin(client.call(request(Method::GET))))
    else {
        panic!()
    };
    let Poll::Ready(Ok(body)) = poll_once(&mut Box::pin(response.into_body().collect())) else {
        panic!()
    };
    assert_eq!(
        body.to_bytes(),
        r#"{"error":{"code":"insufficient_quota"}}"#
    );
    assert_eq!(server.requests.load(Ordering::Relaxed), 1);
}

#[test]
fn a_deadline_before_the_end_of_the_wait_is_an_error_at_once() {
    let (server, (layer, _clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(9, refuse));
    let mut with_deadline = request(Method::GET);
    with_deadline.extensions_mut().insert(Deadline(seconds(1)));
    let first = poll_once(&mut Box::pin(client.call(with_deadline.clone())));
    assert!(
        matches!(first, Poll::Ready(Ok(response)) if response.status() == 429),
        "a retry would be too late"
    );
    let second = poll_once(&mut Box::pin(client.call(with_deadline)));
    let Poll::Ready(Err(ClientError::Pace(error))) = second else {
        panic!()
    };
    assert!(matches!(error, PaceError::DeadlineTooClose { .. }));
    assert_eq!(
        server.requests.load(Ordering::Relaxed),
        1,
        "the second was not sent"
    );
}

#[test]
fn no_output_shows_credentials() {
    let (server, (layer, _clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(9, refuse));
    let _response = poll_once(&mut Box::pin(client.call(request(Method::POST))));
    let output = format!("{layer:?} {:?} {:?}", layer.pacer(), layer.pacer().status());
    assert!(output.contains("api.example.com"));
    for secret in ["hunter2", "secret", "user"] {
        assert!(!output.contains(secret), "{output}");
    }
}

#[test]
fn callers_with_other_credentials_are_paced_apart() {
    let (server, (layer, _clock)) = (TestServer::default(), layer());
    let mut client = layer.layer(server.client(1, refuse));
    let _refused = poll_once(&mut Box::pin(client.call(request(Method::POST))));
    let mut other = request(Method::POST);
    other
        .headers_mut()
        .insert("authorization", "Bearer other".parse().unwrap());
    assert!(poll_once(&mut Box::pin(client.call(other))).is_ready());
    assert!(poll_once(&mut Box::pin(client.call(request(Method::POST)))).is_pending());
}
