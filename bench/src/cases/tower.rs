//! An axum handler by itself, and behind the layer with two limits: the difference is what the layer costs. And a constant 503
//! beside a request that is shed.
//!
//! The clock stands still. Must not know: how any of it is done.

use std::convert::Infallible;
use std::hint::black_box;
use std::net::SocketAddr;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use axum::Router;
use axum::body::Body;
use axum::extract::{ConnectInfo, Request};
use axum::http::StatusCode;
use axum::response::Response;
use axum::routing::get;
use tollgate_store::ManualClock;
use tollgate_tower::{LimitSpec, TollgateLayer};
use tower_service::Service;

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// The places and the queue of a new concurrency limit.
const HELD_REQUESTS: usize = 2 * 32;

/// The handler by itself.
pub(super) fn bare(times: u64) -> CaseRun {
    run(times, app(), 200, 1)
}

/// A handler by itself that answers what a shed request gets.
pub(super) fn constant_503(times: u64) -> CaseRun {
    let refuse = || async {
        let fields = [
            ("content-type", "application/problem+json"),
            ("cache-control", "no-store"),
            ("retry-after", "1"),
        ];
        (StatusCode::SERVICE_UNAVAILABLE, fields, "overloaded")
    };
    run(
        times,
        Router::new().route("/items/{id}", get(refuse)),
        503,
        3,
    )
}

/// A request that is shed, because every place and the queue are taken.
pub(super) fn shed(times: u64) -> CaseRun {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .build()?;
    let _entered = runtime.enter();
    let layer = TollgateLayer::builder()
        .policy("limits: none\noverload: { adaptive_concurrency: enforce }")
        .build_with_clock(ManualClock::at(NOW))?;
    let hang = get(std::future::pending::<&str>);
    let mut app = Router::new().route("/items/{id}", hang).layer(layer);
    let mut held = Vec::new();
    for _ in 0..HELD_REQUESTS {
        let mut future = Box::pin(Service::<Request>::call(&mut app, request()?));
        let polled = future
            .as_mut()
            .poll(&mut Context::from_waker(Waker::noop()));
        if polled.is_ready() {
            return Err("a request was answered that has to hold its place".into());
        }
        held.push(future);
    }
    run(times, app, 503, 3)
}

/// The handler behind a limit for each address and one for each key.
pub(super) fn two_limits(times: u64) -> CaseRun {
    let layer = TollgateLayer::builder()
        .limit(LimitSpec::rate("per-client", "1000000000/h").key("ip"))
        .limit(LimitSpec::rate("per-key", "1000000000/h").key("header.x-api-key"))
        .build_with_clock(ManualClock::at(NOW))?;
    run(times, app().layer(layer), 200, 3)
}

fn app() -> Router {
    Router::new().route("/items/{id}", get(|| async { "hello" }))
}

/// Calls the service. Its responses have this status, and so many fields or more.
fn run(times: u64, mut app: Router, status: u16, fields: usize) -> CaseRun {
    let first = call(&mut app, request()?);
    if first.is_none_or(|first| first.status() != status || first.headers().len() < fields) {
        return Err("the first request was not answered as expected".into());
    }
    let request = request()?;
    measured_section(times, || {
        call(black_box(&mut app), black_box(&request).clone_head())
    });
    Ok(())
}

/// A copy of a request, as a server makes one of the bytes of each.
trait CloneHead {
    fn clone_head(&self) -> Request;
}

impl CloneHead for Request {
    fn clone_head(&self) -> Request {
        let mut copy = Request::new(Body::empty());
        *copy.uri_mut() = self.uri().clone();
        *copy.headers_mut() = self.headers().clone();
        *copy.extensions_mut() = self.extensions().clone();
        copy
    }
}

fn request() -> Result<Request, axum::http::Error> {
    let mut request = Request::get("/items/7")
        .header("host", "api.example")
        .header("x-api-key", "user000000000001")
        .body(Body::empty())?;
    let peer = SocketAddr::from(([192, 0, 2, 7], 4_000));
    request.extensions_mut().insert(ConnectInfo(peer));
    Ok(request)
}

fn call(app: &mut Router, request: Request) -> Option<Response> {
    let future = pin!(Service::<Request>::call(app, request));
    match future.poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(response) => response.map_err(|never: Infallible| match never {}).ok(),
        Poll::Pending => None,
    }
}
