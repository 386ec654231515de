//! The interface between HTTP parsing and endpoints: a request read in full, and the trait that answers it.
//!
//! Must not know: connections, how a request was parsed, which endpoints exist.

use std::future::Future;
use std::pin::pin;

use hyper::{HeaderMap, Method, StatusCode};
use tollgate_service::catch_panic;

use super::prefer::BodyForm;
use super::response::HttpResponse;
use crate::listen::counters::{ListenerCounters, increment};
use crate::listen::{BufferReservation, Peer};

/// One request, read in full.
#[derive(Debug)]
pub(crate) struct HttpRequest<'a> {
    pub(crate) method: &'a Method,
    pub(crate) path: &'a str,
    pub(crate) query: &'a str,
    pub(crate) headers: &'a HeaderMap,
    /// The body that the client prefers, if it says so.
    pub(crate) prefer: Option<BodyForm>,
    pub(crate) body: &'a [u8],
    /// The client and the endpoint that it connected to.
    pub(crate) peer: &'a Peer,
}

/// Answers requests. The public API and the admin listener implement it.
pub(crate) trait HttpHandler: Send + Sync + 'static {
    /// The longest body that is read for such a request; 0 if the endpoint takes none.
    fn max_body_len(&self, method: &Method, path: &str) -> usize;

    /// Whether the endpoint at this path uses header fields. If not, the parser need not collect them.
    fn reads_headers(&self, path: &str) -> bool {
        let _any = path;
        true
    }

    /// Whether a fleet decides. Without one every response is ready at the first poll.
    fn has_fleet(&self) -> bool {
        false
    }

    fn handle(&self, request: &HttpRequest<'_>) -> impl Future<Output = HttpResponse> + Send;

    fn counters(&self) -> &ListenerCounters;

    /// An empty reservation for the buffers of one connection.
    fn reserve_buffers(&self) -> BufferReservation;
}

/// The response of the handler, or a 500 if it panics.
pub(crate) async fn handle_or_500<A: HttpHandler>(
    handler: &A,
    request: &HttpRequest<'_>,
) -> HttpResponse {
    // Pinned here, because a future that is moved is copied and stored twice.
    match catch_panic(pin!(handler.handle(request))).await {
        Some(reply) => reply,
        None => panic_response(handler, request),
    }
}

/// The response after a panic.
#[cold]
fn panic_response<A: HttpHandler>(handler: &A, request: &HttpRequest<'_>) -> HttpResponse {
    increment(&handler.counters().panics);
    tracing::error!(path = request.path, "request panicked");
    let detail = "internal error while answering this request";
    HttpResponse::status_problem(StatusCode::INTERNAL_SERVER_ERROR, detail)
}

/// The response to a request that the buffer budget has no room for. It is counted.
#[cold]
pub(crate) fn buffers_full<A: HttpHandler>(
    handler: &A,
    buffers: &BufferReservation,
) -> HttpResponse {
    buffers.budget().record_refusal(handler.counters());
    let detail = "body: the server buffers too many requests; send it again later, or a body of at most 4096 bytes";
    HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, detail)
        .with_header("retry-after", "1")
}
