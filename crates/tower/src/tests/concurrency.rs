//! Permits: how long they are held, and that every way to end releases them (I-14).

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_service::Nanos;
use tower::{ServiceExt as _, service_fn};
use tower_layer::Layer as _;

use super::support::{TestLayer, ask, get, layer, statuses, text};
use crate::RequestPermit;

const ONE: &str = "limits: [{ name: one, concurrency: 1 }]";

/// A body of two frames.
struct TwoFrames(u8);

impl Body for TwoFrames {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if self.0 == 2 {
            return Poll::Ready(None);
        }
        self.0 += 1;
        Poll::Ready(Some(Ok(Frame::data(Bytes::from_static(b"frame")))))
    }
}

async fn is_free(layer: &TestLayer) -> bool {
    statuses(layer, "/", 1).await == [200]
}

async fn streaming(
    layer: &TestLayer,
) -> impl Body<Data = Bytes, Error = Infallible> + Unpin + use<> {
    let inner =
        service_fn(|_| async { Ok::<_, Infallible>(Response::new(Box::pin(TwoFrames(0)))) });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 200);
    Box::pin(response.into_body())
}

#[tokio::test]
async fn i14_a_permit_is_held_until_the_body_ends_or_is_dropped() {
    let (layer, _clock) = layer(ONE);
    let mut body = streaming(&layer).await;
    assert!(!is_free(&layer).await, "the head is not the end");
    body.frame().await.unwrap().unwrap();
    assert!(!is_free(&layer).await, "nor is a frame");
    body.frame().await.unwrap().unwrap();
    assert!(body.frame().await.is_none());
    assert!(
        is_free(&layer).await,
        "the end, although the body still exists"
    );
    drop(streaming(&layer).await);
    assert!(is_free(&layer).await, "a client that is gone");
}

/// A client that sends its next request when it has read the response must not be denied.
#[tokio::test]
async fn a_client_that_sends_one_request_after_the_other_is_never_denied() {
    let (layer, _clock) = layer(ONE);
    assert_eq!(statuses(&layer, "/", 50).await, [200; 50]);
    // With a known length nobody polls past the last frame.
    let mut response = ask(&layer, get("/")).await;
    response.body_mut().frame().await.unwrap().unwrap();
    assert!(response.body().is_end_stream());
    assert!(is_free(&layer).await);
}

#[tokio::test]
async fn i14_aborts_timeouts_and_panics_release_permits() {
    let (layer, _clock) = layer(ONE);
    let endless = service_fn(|_: Request<()>| {
        std::future::pending::<Result<Response<Full<Bytes>>, Infallible>>()
    });
    let mut call = Box::pin(layer.layer(endless).oneshot(get("/")));
    assert!(futures_poll(call.as_mut()).is_pending());
    assert!(!is_free(&layer).await);
    drop(call);
    assert!(is_free(&layer).await, "aborted");

    let late = timeout(Duration::ZERO, layer.layer(endless).oneshot(get("/")));
    assert!(late.await.is_err());
    assert!(is_free(&layer).await, "timed out");

    let broken = service_fn(|_: Request<()>| async {
        tokio::task::yield_now().await;
        assert!(std::hint::black_box(false), "the handler panics");
        Ok::<_, Infallible>(text(""))
    });
    let mut tasks = JoinSet::new();
    tasks.spawn(layer.layer(broken).oneshot(get("/")));
    let ended = tasks.join_next().await.unwrap();
    assert!(ended.unwrap_err().is_panic());
    assert!(is_free(&layer).await, "panicked");

    let failing = service_fn(|_: Request<()>| async { Err::<Response<Full<Bytes>>, _>("failed") });
    assert!(layer.layer(failing).oneshot(get("/")).await.is_err());
    assert!(is_free(&layer).await, "failed");
}

/// The response to an upgrade has no body, and its stream lives on.
#[tokio::test]
#[expect(
    clippy::disallowed_methods,
    reason = "an upgraded stream outlives its handler"
)]
async fn i14_a_permit_travels_with_an_upgraded_stream() {
    let (layer, _clock) = layer(ONE);
    let (close, closed) = oneshot::channel::<()>();
    let closed = Arc::new(Mutex::new(Some(closed)));
    let inner = service_fn(move |mut request: Request<()>| {
        let permit = request.extensions_mut().remove::<RequestPermit>();
        let closed = closed.lock().unwrap().take();
        let stream = tokio::task::spawn(async move {
            let _closed = closed.unwrap().await;
            drop(permit);
        });
        drop(stream);
        async {
            let mut response = text("");
            *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
            Ok::<_, Infallible>(response)
        }
    });
    let response = layer.layer(inner).oneshot(get("/")).await.unwrap();
    assert_eq!(response.status(), 101);
    drop(response);
    assert!(!is_free(&layer).await, "the stream is open");
    close.send(()).unwrap();
    let released = async {
        while layer.rate_limit_service().held_permits().0 > 0 {
            tokio::task::yield_now().await;
        }
    };
    timeout(Duration::from_secs(10), released).await.unwrap();
    assert!(is_free(&layer).await);
}

/// A lease of 60 s expired while its request went on, and one more request was admitted.
#[tokio::test]
async fn i14_leases_are_renewed_while_requests_go_on() {
    let (layer, clock) = layer("limits: [{ name: one, concurrency: 1, lease: 60s }]");
    let body = streaming(&layer).await;
    for _ in 0..10 {
        clock.advance(Nanos::from_secs(50));
        assert!(!is_free(&layer).await);
    }
    // Nobody asks for an hour.
    clock.advance(Nanos::HOUR);
    assert!(!is_free(&layer).await);
    assert_eq!(layer.rate_limit_service().held_permits(), (1, 0));
    drop(body);
    assert!(is_free(&layer).await);
    assert_eq!(layer.rate_limit_service().held_permits(), (0, 0));
}

fn futures_poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(std::task::Waker::noop()))
}
