//! What requests that wait cost: memory within a bound, and no timer of their own.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use tollgate_core::Nanos;
use tollgate_store::ManualClock;
use tollgate_testkit::allocation::{CountingAllocator, held_bytes};
use tower::{Layer as _, Service};

use super::support::{NOW, poll_once};
use crate::{CloneBody, PacedFuture, PacerLayer, PacerSettings, SharedPacer};

#[global_allocator]
static ALLOCATOR: CountingAllocator = CountingAllocator;

const WAITERS: usize = 10_000;

type WaitingRequest = Pin<Box<PacedFuture<Full<Bytes>, Infallible>>>;

/// A server that answers at once.
#[derive(Clone)]
struct Server;

impl Service<Request<Full<Bytes>>> for Server {
    type Response = Response<Full<Bytes>>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Full<Bytes>>) -> Self::Future {
        ready(Ok(Response::new(Full::default())))
    }
}

fn request() -> Request<Full<Bytes>> {
    Request::get("http://api.example.com/items/7")
        .header("authorization", "Bearer 0123456789abcdef")
        .body(Full::default())
        .unwrap()
}

/// Futures that wait, without a runtime: a timer of a runtime would panic here.
#[test]
fn ten_thousand_requests_that_wait_take_at_most_ten_megabytes_and_no_timers() {
    assert!(held_bytes(|| drop(black_box(Vec::<u8>::with_capacity(64)))) == 0);
    let mut kept = Vec::<u8>::new();
    let counted = held_bytes(|| kept = black_box(Vec::with_capacity(1_000)));
    assert!(
        counted >= 1_000,
        "a control that shows that bytes are counted"
    );
    let clock = Arc::new(ManualClock::at(NOW));
    let settings = PacerSettings::default()
        .with_max_wait(Nanos::HOUR)
        .with_initial_rate(10.0)
        .unwrap();
    let pacer = SharedPacer::with_clock(settings, Arc::clone(&clock));
    let layer: PacerLayer<CloneBody, _> = PacerLayer::with_pacer(pacer.clone());
    let mut client = layer.layer(Server);
    let mut waiting: Vec<WaitingRequest> = Vec::new();
    // The requests themselves are the caller's: only what is added to them counts.
    let mut requests: Vec<_> = (0..=WAITERS).map(|_| request()).collect();
    let bytes = held_bytes(|| {
        for request in requests.drain(..) {
            let mut future = Box::pin(client.call(request));
            if poll_once(&mut future).is_pending() {
                waiting.push(future);
            }
        }
    });
    assert_eq!((waiting.len(), pacer.waiting()), (WAITERS, WAITERS));
    assert!(bytes <= 10_000_000, "{bytes} bytes");
    // One look at the clock grants everybody whose turn has come.
    clock.advance(Nanos::from_secs(1));
    pacer.tick();
    waiting.retain_mut(|future| poll_once(future).is_pending());
    assert!(waiting.len() < WAITERS, "somebody's turn has come");
    drop(waiting);
    assert_eq!(pacer.waiting(), 0);
}
