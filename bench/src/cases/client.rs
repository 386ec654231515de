//! A client's service by itself, and behind the pacing layer: the difference is what the layer costs.
//!
//! Every request is admitted without a wait, and the server reports two limits. Must not know: how any of it is done.

use std::convert::Infallible;
use std::future::{Ready, ready};
use std::hint::black_box;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};
use hyper::{Request, Response};
use tollgate_client::{CloneBody, PacerLayer, PacerSettings, SharedPacer};
use tollgate_core::Nanos;
use tollgate_store::ManualClock;
use tower_service::Service;

use super::{CaseRun, NOW};
use crate::measure::measured_section;

/// A body without content.
#[derive(Clone, Copy, Debug)]
pub struct NoContent;

impl Body for NoContent {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: std::pin::Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(0)
    }
}

/// A server that answers at once and reports its limits.
#[derive(Clone, Debug)]
pub struct ReportingServer {
    fields: HeaderMap,
}

impl ReportingServer {
    /// A server with two limits.
    #[must_use]
    pub fn new() -> Self {
        let mut fields = HeaderMap::new();
        for (name, value) in [
            ("content-type", "application/json"),
            ("date", "Tue, 14 Nov 2023 22:13:20 GMT"),
            (
                "ratelimit-policy",
                "\"second\";q=100000000;w=1, \"hour\";q=10000000000;w=3600",
            ),
            (
                "ratelimit",
                "\"second\";r=99999999;t=1, \"hour\";r=9999999999;t=3000",
            ),
        ] {
            fields.insert(
                HeaderName::from_static(name),
                HeaderValue::from_static(value),
            );
        }
        Self { fields }
    }
}

impl Default for ReportingServer {
    fn default() -> Self {
        Self::new()
    }
}

impl Service<Request<NoContent>> for ReportingServer {
    type Response = Response<NoContent>;
    type Error = Infallible;
    type Future = Ready<Result<Self::Response, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<NoContent>) -> Self::Future {
        let mut response = Response::new(NoContent);
        *response.headers_mut() = self.fields.clone();
        ready(Ok(response))
    }
}

/// A request of a client that has credentials.
///
/// # Errors
/// Never: it is valid.
pub fn request() -> Result<Request<NoContent>, hyper::http::Error> {
    Request::get("http://api.example/items/7")
        .header("authorization", "Bearer 0123456789abcdef")
        .body(NoContent)
}

/// Calls a service that answers at once.
pub fn call<S: Service<Request<NoContent>>>(
    service: &mut S,
    request: Request<NoContent>,
) -> Option<Result<S::Response, S::Error>> {
    let mut context = Context::from_waker(Waker::noop());
    if service.poll_ready(&mut context).is_pending() {
        return None;
    }
    match pin!(service.call(request)).poll(&mut context) {
        Poll::Ready(result) => Some(result),
        Poll::Pending => None,
    }
}

/// The service by itself.
pub(super) fn bare(times: u64) -> CaseRun {
    let mut server = ReportingServer::new();
    let request = request()?;
    measured_section(times, || {
        call(black_box(&mut server), black_box(&request).clone())
    });
    Ok(())
}

/// The service behind the layer.
pub(super) fn layer(times: u64) -> CaseRun {
    let clock = Arc::new(ManualClock::at(NOW));
    let settings = PacerSettings::default().with_initial_rate(1_000_000.0)?;
    let pacer = SharedPacer::with_clock(settings, Arc::clone(&clock));
    let layer: PacerLayer<CloneBody, _> = PacerLayer::with_pacer(pacer);
    let mut paced = tower_layer::Layer::layer(&layer, ReportingServer::new());
    let request = request()?;
    // Every request comes when the one before it is long over, so that none waits.
    for _ in 0..10 {
        clock.advance(Nanos::from_millis(1));
        if !matches!(call(&mut paced, request.clone()), Some(Ok(_))) {
            return Err("a request waits".into());
        }
    }
    measured_section(times, || {
        clock.advance(Nanos::from_millis(1));
        call(black_box(&mut paced), black_box(&request).clone())
    });
    Ok(())
}
