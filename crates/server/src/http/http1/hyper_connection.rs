//! A connection that hyper serves: it takes over at the first request that is not plain, until the connection ends.
//!
//! Must not know: endpoints, sockets.

use std::convert::Infallible;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::BodyExt as _;
use hyper::body::{Body, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;

use super::fast_parser::{MAX_FIELDS, MAX_HEAD_LEN};
use crate::http::HttpLimits;
use crate::http::handler::{HttpHandler, HttpRequest, buffers_full, handle_or_500};
use crate::http::prefer::BodyForm;
use crate::http::response::HttpResponse;
use crate::listen::{
    BufferReservation, BuffersFull, Peer, PrefixedStream, ShutdownSignal, confirmed_timeout,
};

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
    // The body and its reservation live until the response is decided.
    let body = match handler.max_body_len(&head.method, head.uri.path()) {
        0 => None,
        max_len => match read_body(limits, handler, body, max_len).await {
            Ok(body) => Some(body),
            Err(reply) => return reply,
        },
    };
    let request = HttpRequest {
        method: &head.method,
        path: head.uri.path(),
        query: head.uri.query().unwrap_or(""),
        headers: &head.headers,
        prefer: BodyForm::from_headers(&head.headers),
        body: body.as_ref().map_or(&[], |body| &body.bytes),
        peer,
    };
    handle_or_500(handler, &request).await
}

/// A body that was read, and the reservation of its bytes.
struct BufferedBody {
    bytes: Vec<u8>,
    reserved: BufferReservation,
}

/// Why a body cannot be read.
enum BodyError {
    TooLong,
    Incomplete,
    BuffersFull,
}

/// Reads the body, or returns the response that explains why it cannot be read.
async fn read_body<A: HttpHandler>(
    limits: HttpLimits,
    handler: &A,
    body: Incoming,
    max_len: usize,
) -> Result<BufferedBody, HttpResponse> {
    let mut buffered = BufferedBody {
        bytes: Vec::new(),
        reserved: handler.reserve_buffers(),
    };
    // Check the declared length before reading, so that the client need not send a body that will be refused.
    let declared = usize::try_from(body.size_hint().lower()).unwrap_or(usize::MAX);
    let error = if declared > max_len {
        BodyError::TooLong
    } else if !buffered.reserved.fits(declared) {
        BodyError::BuffersFull
    } else {
        let time = buffered.reserved.budget().timeout(limits.body_timeout);
        match confirmed_timeout(time, collect(body, &mut buffered, max_len)).await {
            Ok(Ok(())) => return Ok(buffered),
            Ok(Err(error)) => error,
            Err(_) => {
                let detail = format!("body: it was not complete after {} s", time.as_secs());
                return Err(HttpResponse::status_problem(
                    StatusCode::REQUEST_TIMEOUT,
                    detail,
                ));
            }
        }
    };
    Err(match error {
        BodyError::TooLong => {
            let detail = format!("body: it is longer than {max_len} bytes");
            HttpResponse::status_problem(StatusCode::PAYLOAD_TOO_LARGE, detail)
        }
        BodyError::Incomplete => HttpResponse::status_problem(
            StatusCode::BAD_REQUEST,
            "body: it ended before it was complete",
        ),
        BodyError::BuffersFull => buffers_full(handler, &buffered.reserved),
    })
}

/// Reads all of the body. Its bytes are copied into one buffer that is reserved before it grows: a list of received pieces
/// would need many times the memory of a body that arrives byte by byte.
async fn collect(
    mut body: Incoming,
    buffered: &mut BufferedBody,
    max_len: usize,
) -> Result<(), BodyError> {
    let BufferedBody { bytes, reserved } = buffered;
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_gone| BodyError::Incomplete)?.into_data() else {
            // Trailers are ignored.
            continue;
        };
        let len = bytes.len().saturating_add(data.len());
        if len > max_len {
            return Err(BodyError::TooLong);
        }
        if len > bytes.capacity() {
            let room = len.max(bytes.len().saturating_mul(2)).min(max_len);
            reserved
                .resize(room)
                .map_err(|BuffersFull| BodyError::BuffersFull)?;
            bytes.reserve_exact(room.saturating_sub(bytes.len()));
        }
        bytes.extend_from_slice(&data);
    }
    Ok(())
}
