//! The seam between reading HTTP and answering it: the request in full, and the trait of everything that answers one.
//!
//! Must not know: connections, how a request was read, who answers it.

use std::future::Future;
use std::pin::pin;

use hyper::{HeaderMap, Method, StatusCode};
use tollgate_service::catch_panic;

use super::response::HttpResponse;
use crate::listen::Peer;
use crate::listen::counters::{ListenerCounters, increment};

/// One request, read in full.
#[derive(Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    pub(crate) body: &'a [u8],
    /// Who asks, and where they reached us.
    pub(crate) peer: &'a Peer,
}

/// Answers requests: the API does, and the admin listener.
pub(crate) trait HttpHandler: Send + Sync + 'static {
    /// The longest body that is read of such a request. None is read where none is wanted.
    fn max_body_len(&self, method: &Method, path: &str) -> usize;

    /// Whether the answer at this path depends on header fields. Where it does not, none need be shown.
    fn reads_headers(&self, path: &str) -> bool {
        let _any = path;
        true
    }

    /// Whether a fleet decides. Without one every response is ready when it is first polled.
    fn has_fleet(&self) -> bool {
        false
    }

    fn handle(&self, request: &HttpRequest<'_>) -> impl Future<Output = HttpResponse> + Send;

    fn counters(&self) -> &ListenerCounters;
}

/// The answer, whatever happens.
pub(crate) async fn handle_or_500<A: HttpHandler>(
    handler: &A,
    request: &HttpRequest<'_>,
) -> HttpResponse {
    // Pinned here, because a future that is handed on by value is copied and kept twice.
    match catch_panic(pin!(handler.handle(request))).await {
        Some(reply) => reply,
        None => failed(handler, request),
    }
}

/// What is answered because of a bug of ours.
#[cold]
fn failed<A: HttpHandler>(handler: &A, request: &HttpRequest<'_>) -> HttpResponse {
    increment(&handler.counters().panics);
    tracing::error!(path = request.path, "a request panicked");
    let detail = "the server failed to answer this request; it is not the request's fault";
    HttpResponse::status_problem(StatusCode::INTERNAL_SERVER_ERROR, detail)
}
