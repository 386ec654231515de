//! A connection that hyper serves: it takes over at the first request that is not plain, until the connection pauses.
//!
//! Must not know: routes, upstreams, sockets.

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncWrite, AsyncWriteExt as _};
use tokio::time::Instant;
use tollgate_store::Clock;

use crate::gateway::client_requests::{ClientBody, ClientRequests, HyperRequest};
use crate::gateway::framing_guard::FramingGuard;
use crate::gateway::head_timer::{HeadTimer, IdleAction, OpenExchange, TrackedBody};
use crate::gateway::limits::MAX_HEAD_LEN;
use crate::gateway::tracked_stream::TrackedStream;
use crate::gateway::websocket::{ConnectionTunnel, TunnelPlace};
use crate::listen::{PrefixedStream, ShutdownSignal, Stream};

/// The response to a head that did not arrive in time. hyper would close the connection without one.
const HEAD_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";

/// A stream between two requests, and since when the next one is awaited.
type PausedStream = (PrefixedStream<Stream>, Instant);

/// Serves requests, of which the first is awaited since then. Returns the stream when it pauses, and `None` when it has ended.
pub(super) async fn serve<C: Clock + 'static>(
    client: ClientRequests<C>,
    stream: PrefixedStream<Stream>,
    waiting_since: Instant,
    stopping: &ShutdownSignal,
) -> Option<PausedStream> {
    let limits = client.limits();
    let mut timer = HeadTimer::new(limits.header_timeout, limits.park_after, waiting_since);
    let (tracker, tunnel) = (timer.tracker(), ConnectionTunnel::default());
    let guard = FramingGuard::new(tunnel.clone());
    let mut stream = TrackedStream::new(stream, guard, tracker.clone());
    let place = TunnelPlace::Connection(tunnel.clone());
    let requests = client.clone();
    let mut service =
        service_fn(move |request| handle(requests.clone(), request, &place, tracker.begin()));
    let mut stop = pin!(stopping.wait());
    let mut is_stopping = false;
    let ended = loop {
        let mut connection = http1_builder()
            .serve_connection(TokioIo::new(stream), service)
            .with_upgrades();
        if is_stopping {
            Pin::new(&mut connection).graceful_shutdown();
        }
        let ended_or_idle = poll_fn(|context| {
            if !is_stopping && stop.as_mut().poll(context).is_ready() {
                is_stopping = true;
                Pin::new(&mut connection).graceful_shutdown();
            }
            match Pin::new(&mut connection).poll(context) {
                Poll::Ready(ended) => Poll::Ready(Ok(ended)),
                Poll::Pending => match timer.next_action(!is_stopping, context) {
                    IdleAction::Wait => Poll::Pending,
                    action => Poll::Ready(Err(action)),
                },
            }
        });
        let action = match ended_or_idle.await {
            Ok(ended) => break ended,
            Err(action) => action,
        };
        if action == IdleAction::Abort {
            tracing::debug!("connection ended early: the client left during its upload");
            return None;
        }
        // hyper's buffers take 16 KiB, and an idle connection needs none.
        let parts = connection.into_parts()?;
        (stream, service) = (parts.io.into_inner(), parts.service);
        let has_begun = !parts.read_buf.is_empty();
        match (action, has_begun) {
            (IdleAction::Close, has_begun) => {
                // A client that has begun a head waits for a response.
                if has_begun && !timer.has_unsent() {
                    client.log_refused(StatusCode::REQUEST_TIMEOUT);
                    send_head_timeout(&mut stream).await;
                }
                return None;
            }
            (_, true) => stream.unread(parts.read_buf),
            (_, false) => return Some((stream.into_inner(), timer.waiting_since())),
        }
    };
    if let Err(error) = ended {
        log_early_end(&client, &error);
    }
    if let Some(tunnel) = tunnel.take() {
        tunnel.await;
    }
    None
}

/// Handles one request. The response is part of the exchange until its body is dropped.
fn handle<C: Clock + 'static>(
    mut client: ClientRequests<C>,
    request: Request<Incoming>,
    place: &TunnelPlace,
    exchange: OpenExchange,
) -> impl Future<Output = Result<Response<TrackedBody<ClientBody<C>>>, Infallible>> + use<C> {
    let (head, body) = request.into_parts();
    let request = HyperRequest {
        body,
        place: place.clone(),
        exchange: Some(exchange.clone()),
    };
    async move {
        let response = client.handle(head, Some(request)).await;
        Ok(response.map(|body| TrackedBody::new(body, Some(exchange))))
    }
}

/// hyper allows 100 fields by default. To say so makes it fill two arrays of that length for each request.
fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The timer of hyper is made anew for every request.
    builder
        .header_read_timeout(None::<Duration>)
        .max_buf_size(MAX_HEAD_LEN)
        // The buffer may hold more than its bound for a moment, and a longer head must not depend on how it arrives.
        .max_header_size(MAX_HEAD_LEN);
    builder
}

/// Sends 408 and the end of the stream. A client that has left gets nothing.
async fn send_head_timeout(stream: &mut (impl AsyncWrite + Unpin)) {
    if stream.write_all(HEAD_TIMEOUT).await.is_ok() {
        let _gone = stream.shutdown().await;
    }
}

/// Logs that a connection ended early. The client caused this: it disconnected, was too slow, or does not speak HTTP. Or the
/// upstream ended a body early.
fn log_early_end<C: Clock + 'static>(client: &ClientRequests<C>, error: &hyper::Error) {
    tracing::debug!(%error, "connection ended early");
    match (error.is_parse_too_large(), error.is_parse()) {
        (true, _) => client.log_refused(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (false, true) => client.log_refused(StatusCode::BAD_REQUEST),
        (false, false) => {}
    }
}
