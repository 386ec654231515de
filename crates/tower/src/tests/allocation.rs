//! The admitted path allocates nothing once it is warm.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderMap, HeaderValue};
use http::{Request, Response};
use http_body_util::Full;
use tollgate_testkit::allocation::{CountingAllocator, calls};
use tower::Service as _;
use tower_layer::Layer as _;

use super::support::layer_with;
use crate::PeerAddress;

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

/// A handler that does nothing but what every handler does: it names the type of its body.
#[derive(Clone)]
struct Handler;

impl tower::Service<Request<()>> for Handler {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<()>) -> Self::Future {
        let mut response = Response::new(Full::new(Bytes::from_static(b"hello")));
        // Room for the fields of any dialect: how a map of fields grows is not the layer's.
        *response.headers_mut() = HeaderMap::with_capacity(16);
        let plain = HeaderValue::from_static("text/plain");
        response.headers_mut().insert(CONTENT_TYPE, plain);
        ready(Ok(response))
    }
}

#[test]
fn an_admitted_request_allocates_nothing_when_warm_in_any_dialect() {
    for dialect in [
        "draft-11",
        "next",
        "draft-07",
        "draft-06",
        "draft-03",
        "envoy",
        "x-ratelimit",
        "x-ratelimit-epoch",
        "discord",
        "github",
    ] {
        let fields = assert_allocates_nothing(dialect);
        assert!(fields > 0, "{dialect} adds fields");
    }
}

/// Returns how many fields the dialect adds.
fn assert_allocates_nothing(dialect: &str) -> usize {
    let (layer, _clock) = layer_with(
        "limits: [{ name: per-client, key: ip, rate: 1000000/s }, { name: per-key, key: header.x-api-key, rate: 1000000/s }]",
        |builder| builder.dialects(dialect.parse().unwrap()),
    );
    let mut limited = layer.layer(Handler);
    let mut context = Context::from_waker(Waker::noop());
    let request = || {
        let mut request = Request::get("/items/7")
            .header("x-api-key", "alice")
            .body(())
            .unwrap();
        let peer = PeerAddress([192, 0, 2, 7].into());
        request.extensions_mut().insert(peer);
        request
    };
    let mut requests: Vec<_> = (0..2_000).map(|_| request()).collect();
    let mut run = |service: &mut dyn FnMut(Request<()>) -> bool, count: usize| {
        let batch: Vec<_> = requests.drain(..count).collect();
        // The requests are dropped inside as well, in both cases.
        calls(|| {
            for request in batch {
                assert!(service(request));
            }
        })
    };
    let mut fields = 0;
    let mut with_layer = |request| {
        let future = pin!(limited.call(request));
        let Poll::Ready(Ok(response)) = future.poll(&mut context) else {
            return false;
        };
        fields = response.headers().len() - 1;
        response.status() == 200
    };
    run(&mut with_layer, 500);
    let with = run(&mut with_layer, 500);
    let mut bare_context = Context::from_waker(Waker::noop());
    let mut without_layer = |request| {
        let future = pin!(Handler.call(request));
        matches!(future.poll(&mut bare_context), Poll::Ready(Ok(_)))
    };
    run(&mut without_layer, 500);
    let without = run(&mut without_layer, 500);
    assert!(without > 0, "it counts");
    assert_eq!(with, without, "{dialect}");
    fields
}
