//! A connection that hyper serves: it takes over at the first request that is not plain, until the connection ends.
//!
//! Must not know: endpoints, sockets.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, LengthLimitError, Limited};
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::fast_parser::{MAX_FIELDS, MAX_HEAD_LEN};
use crate::http::HttpLimits;
use crate::http::handler::{HttpHandler, HttpRequest, handle_or_500};
use crate::http::response::HttpResponse;
use crate::listen::{Peer, PrefixedStream, ShutdownSignal, confirmed_timeout};

/// Serves any HTTP/1 request until the connection ends.
pub(super) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin + Send>(
    limits: HttpLimits,
    handler: Arc<A>,
    stream: PrefixedStream<S>,
    peer: Peer,
    stopping: ShutdownSignal,
) {
    let peer = Arc::new(peer);
    let service = service_fn(move |request| {
        let (handler, peer) = (Arc::clone(&handler), Arc::clone(&peer));
        async move {
            let mut reply = respond(limits, &*handler, request, &peer).await;
            if !reply.delay().is_zero() {
                let _held = handler.counters().hold_response();
                // hyper drops this future if the client disconnects, and with it the permit.
                sleep(Duration::from_nanos(reply.delay().as_nanos())).await;
                if let Some(permit) = reply.take_wait_permit() {
                    permit.complete();
                }
            }
            Ok::<_, Infallible>(reply.into_response())
        }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.header_timeout)
        .max_buf_size(MAX_HEAD_LEN)
        .max_headers(MAX_FIELDS)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = pin!(connection);
    let ended = tokio::select! {
        biased;
        ended = &mut connection => ended,
        () = stopping.wait() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // The client caused this: it disconnected, was too slow, or does not speak HTTP.
        tracing::debug!(%error, "connection ended early");
    }
}

async fn respond<A: HttpHandler>(
    limits: HttpLimits,
    handler: &A,
    request: Request<Incoming>,
    peer: &Peer,
) -> HttpResponse {
    let (head, body) = request.into_parts();
    let body = match handler.max_body_len(&head.method, head.uri.path()) {
        0 => Ok(Bytes::new()),
        max_len => read_body(limits, body, max_len).await,
    };
    let body = match body {
        Ok(body) => body,
        Err(reply) => return reply,
    };
    let request = HttpRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or(""),
        headers: &head.headers,
        body: &body,
        peer,
    };
    handle_or_500(handler, &request).await
}

/// Reads the body, or returns the response that explains why it cannot be read.
async fn read_body(
    limits: HttpLimits,
    body: Incoming,
    max_len: usize,
) -> Result<Bytes, HttpResponse> {
    let too_long = || {
        let detail = format!("body: it is longer than {max_len} bytes");
        HttpResponse::status_problem(StatusCode::PAYLOAD_TOO_LARGE, detail)
    };
    // Check the declared length before reading, so that the client need not send a body that is too long.
    if body.size_hint().lower() > max_len as u64 {
        return Err(too_long());
    }
    match confirmed_timeout(limits.body_timeout, Limited::new(body, max_len).collect()).await {
        Ok(Ok(body)) => Ok(body.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_long()),
        Ok(Err(_)) => Err(HttpResponse::status_problem(
            StatusCode::BAD_REQUEST,
            "body: it ended before it was complete",
        )),
        Err(_) => {
            let seconds = limits.body_timeout.as_secs();
            let detail = format!("body: it was not complete after {seconds} s");
            Err(HttpResponse::status_problem(
                StatusCode::REQUEST_TIMEOUT,
                detail,
            ))
        }
    }
}
