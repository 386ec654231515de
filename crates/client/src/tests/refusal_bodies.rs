//! Bodies of refusals: the layer reads them for the reason, waits little for them, and passes them on as they are.
//!
//! Must not know: what a reason means.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::{Body, Frame};
use http_body_util::{BodyExt as _, Full};
use tollgate_core::Nanos;
use tollgate_store::ManualClock;
use tower::{Layer as _, Service as _, service_fn};

use super::support::{NOW, fast, poll_once, seconds};
use crate::{CloneBody, Deadline, NoReplay, PacedBody, PacerLayer, SharedPacer};

/// Some frames, and then an error, or nothing more.
#[derive(Debug)]
struct BrokenBody {
    frames: VecDeque<&'static str>,
    ends_with_error: bool,
}

impl Body for BrokenBody {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match self.frames.pop_front() {
            Some(text) => Poll::Ready(Some(Ok(Frame::data(Bytes::from(text))))),
            None if std::mem::take(&mut self.ends_with_error) => {
                Poll::Ready(Some(Err(io::ErrorKind::ConnectionReset.into())))
            }
            None => Poll::Pending,
        }
    }
}

fn layer() -> (PacerLayer<NoReplay, Arc<ManualClock>>, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(NOW));
    let pacer = SharedPacer::with_clock(fast(), Arc::clone(&clock));
    (PacerLayer::with_pacer(pacer).with_replay(NoReplay), clock)
}

fn request() -> Request<Full<Bytes>> {
    let request = Request::get("http://api.example.com/a");
    request.body(Full::default()).unwrap()
}

/// Calls a server whose refusal announces more bytes than it sends.
fn call_broken(
    layer: &PacerLayer<NoReplay, Arc<ManualClock>>,
    ends_with_error: bool,
) -> Pin<Box<dyn Future<Output = Response<PacedBody<BrokenBody>>>>> {
    let mut client = layer.layer(service_fn(move |_: Request<Full<Bytes>>| async move {
        let body = BrokenBody {
            frames: ["{\"mess"].into(),
            ends_with_error,
        };
        let response = Response::builder().status(429).header("retry-after", "1");
        let response = response.header("content-type", "application/json");
        let response = response.header("content-length", "100").body(body);
        Ok::<_, Infallible>(response.unwrap())
    }));
    let called = client.call(request());
    Box::pin(async move { called.await.unwrap() })
}

/// A server that sends the head of a refusal, and never its body, kept a request for ever, also beyond its deadline. The permit was not
/// given back, and the other tasks did not learn of `Retry-After`.
#[test]
fn a_refusal_whose_body_does_not_arrive_is_passed_on_after_a_second() {
    let (layer, clock) = layer();
    let mut future = call_broken(&layer, false);
    assert!(poll_once(&mut future).is_pending());
    clock.advance(Nanos::from_millis(999));
    layer.pacer().tick();
    assert!(poll_once(&mut future).is_pending());
    clock.advance(Nanos::from_millis(1));
    layer.pacer().tick();
    let Poll::Ready(response) = poll_once(&mut future) else {
        panic!("the body is still waited for")
    };
    assert_eq!(response.status(), 429);
    assert!(layer.pacer().status()[0].blocked_until.is_some());
    assert_eq!(layer.pacer().status()[0].in_flight, 0);
    // What has arrived is still there.
    let mut body = Box::pin(response.into_body());
    let Poll::Ready(Some(Ok(frame))) = poll_once(&mut Box::pin(body.frame())) else {
        panic!()
    };
    assert_eq!(frame.into_data().unwrap(), "{\"mess");
}

/// A connection that broke in the body of a refusal looked like the end of the body.
#[test]
fn an_error_in_the_body_of_a_refusal_reaches_the_reader() {
    let (layer, _clock) = layer();
    let Poll::Ready(response) = poll_once(&mut call_broken(&layer, true)) else {
        panic!()
    };
    let mut body = Box::pin(response.into_body());
    let mut next = || poll_once(&mut Box::pin(body.frame()));
    assert!(matches!(next(), Poll::Ready(Some(Ok(_)))));
    assert!(matches!(next(), Poll::Ready(Some(Err(_)))));
}

/// Bodies in chunks, over HTTP/2 and after decompression have no `Content-Length`. They were not read, so a budget that was used up was
/// asked again three times.
#[test]
fn a_reason_without_a_length_is_read() {
    let call = |content_type: &'static str, frames: VecDeque<&'static str>| {
        let (layer, _clock) = layer();
        let layer = layer.with_replay(CloneBody);
        let mut client = layer.layer(service_fn(move |_: Request<Full<Bytes>>| {
            let frames = frames.clone();
            async move {
                let response = Response::builder().status(429);
                let response = response.header("content-type", content_type);
                let body = BrokenBody {
                    frames,
                    ends_with_error: true,
                };
                Ok::<_, Infallible>(response.body(body).unwrap())
            }
        }));
        let polled = poll_once(&mut Box::pin(client.call(request())));
        match polled {
            Poll::Ready(response) => Some(response.unwrap().into_body()),
            Poll::Pending => None,
        }
    };
    let exhausted = r#"{"error":{"code":"insufficient_quota"}}"#;
    let body = call("application/json", [exhausted].into());
    assert!(body.is_some(), "it is passed on, not tried again");
    let retried = call("application/json", [r#"{"error":{}}"#].into());
    assert!(retried.is_none(), "control: the retry waits");
}

/// A server may send a refusal that never ends. Nothing of it is lost, and only its beginning is kept meanwhile.
#[test]
fn of_a_long_refusal_only_the_beginning_is_read() {
    let (layer, _clock) = layer();
    let mut client = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        let response = Response::builder().status(429);
        let response = response.header("content-type", "application/problem+json");
        let body = BrokenBody {
            frames: ["0123456789abcdef"; 2_000].into(),
            ends_with_error: false,
        };
        Ok::<_, Infallible>(response.body(body).unwrap())
    }));
    let Poll::Ready(Ok(response)) = poll_once(&mut Box::pin(client.call(request()))) else {
        panic!("the end is waited for")
    };
    let mut body = Box::pin(response.into_body());
    let mut length = 0;
    while let Poll::Ready(Some(Ok(frame))) = poll_once(&mut Box::pin(body.frame())) {
        length += frame.into_data().unwrap().len();
    }
    assert_eq!(length, 32_000);
}

/// The wait that Discord asks for is often shorter than what its bucket requires. The retry was queued by the first and failed by the second: the
/// caller got an error in place of the refusal, which was lost.
#[test]
fn a_refusal_is_passed_on_if_the_limits_make_a_retry_too_late() {
    let clock = Arc::new(ManualClock::at(NOW));
    let layer = PacerLayer::with_pacer(SharedPacer::with_clock(fast(), clock));
    let mut client = layer.layer(service_fn(|_: Request<Full<Bytes>>| async {
        let refusal = Response::builder().status(429).header("retry-after", "2");
        let refusal = refusal.header("x-ratelimit-limit", "5");
        let refusal = refusal.header("x-ratelimit-remaining", "0");
        let refusal = refusal.header("x-ratelimit-reset-after", "30");
        Ok::<_, Infallible>(refusal.body(Full::<Bytes>::from("slow down")).unwrap())
    }));
    let mut with_deadline = request();
    with_deadline.extensions_mut().insert(Deadline(seconds(10)));
    let Poll::Ready(Ok(response)) = poll_once(&mut Box::pin(client.call(with_deadline))) else {
        panic!("the refusal is lost")
    };
    assert_eq!(response.status(), 429);
    let Poll::Ready(Ok(body)) = poll_once(&mut Box::pin(response.into_body().collect())) else {
        panic!()
    };
    assert_eq!(body.to_bytes(), "slow down");
}
