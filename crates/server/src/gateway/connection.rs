//! One connection of a client: HTTP/1.1 or HTTP/2, told apart by its first bytes.
//!
//! Must not know: what requests ask for, routes, upstreams, sockets.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tollgate_store::Clock;

use super::GatewayShared;
use super::client_requests::{ClientRequests, HyperRequest};
use super::head_timer::TrackedBody;
use super::http1;
use super::limits::{
    GatewayLimits, HTTP2_CONNECTION_WINDOW, HTTP2_KEEPALIVE_INTERVAL, HTTP2_KEEPALIVE_TIMEOUT,
    HTTP2_SEND_BUFFER, HTTP2_WINDOW, MAX_ERROR_RESETS, MAX_HEADER_LIST_LEN, MAX_RESET_STREAMS,
};
use super::slow_stream::TimedStreams;
use super::stream_tasks::StreamTasks;
use super::websocket::TunnelPlace;
use crate::grpc::frame_guard::{FloodSignal, FrameGuard};
use crate::listen::counters::increment;
use crate::listen::{
    BufferPriority, BufferReservation, Peer, PrefixedStream, ShutdownSignal, Stream,
    confirmed_timeout,
};

/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Serves one connection until it ends.
pub(super) async fn serve<C: Clock + 'static>(
    shared: Arc<GatewayShared<C>>,
    limits: GatewayLimits,
    mut stream: Stream,
    peer: Peer,
    stopping: ShutdownSignal,
) {
    let first_bytes = confirmed_timeout(limits.header_timeout, read_first_bytes(&mut stream));
    let first_bytes = tokio::select! {
        biased;
        first_bytes = first_bytes => first_bytes,
        () = stopping.wait() => return,
    };
    let Ok(Ok(first_bytes)) = first_bytes else {
        return;
    };
    let is_http2 = first_bytes == PREFACE;
    let reserved = BufferReservation::new(Arc::clone(&shared.buffers), BufferPriority::Normal);
    let stream = PrefixedStream::new(first_bytes, reserved, stream);
    let client = ClientRequests::new(shared, limits, peer);
    // Boxed, because the two are large and a task would keep the space of both.
    match is_http2 {
        true => Box::pin(serve_http2(client, stream, stopping)).await,
        false => Box::pin(http1::serve(client, stream, stopping)).await,
    }
}

/// Reads until the bytes are the preface of HTTP/2, or cannot become it.
async fn read_first_bytes(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(PREFACE.len());
    while bytes.len() < PREFACE.len() && PREFACE.starts_with(&bytes) {
        let missing = PREFACE.len().saturating_sub(bytes.len()) as u64;
        if (&mut *stream).take(missing).read_buf(&mut bytes).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(bytes)
}

async fn serve_http2<C: Clock + 'static>(
    client: ClientRequests<C>,
    stream: PrefixedStream<Stream>,
    stopping: ShutdownSignal,
) {
    let (shared, limits) = (Arc::clone(client.shared()), *client.limits());
    let tasks = StreamTasks::new(Arc::clone(&shared.counters));
    let place = TunnelPlace::Stream(tasks.clone());
    let service = service_fn(move |request: Request<Incoming>| {
        let mut client = client.clone();
        let (head, body) = request.into_parts();
        let request = HyperRequest {
            body,
            place: place.clone(),
            exchange: None,
        };
        // Boxed, because the future is large, and from here to its task it is moved a dozen times.
        Box::pin(async move {
            let response = client.handle(head, Some(request)).await;
            Ok::<_, Infallible>(response.map(|body| TrackedBody::new(body, None)))
        })
    });
    let flood = FloodSignal::default();
    let guarded = FrameGuard::new(stream, flood.clone());
    let streams = TimedStreams {
        tasks: tasks.clone(),
        timeout: limits.listener.write_timeout,
    };
    let connection = http2::Builder::new(streams)
        .timer(TokioTimer::new())
        .max_concurrent_streams(limits.max_concurrent_streams)
        .initial_stream_window_size(HTTP2_WINDOW)
        .initial_connection_window_size(HTTP2_CONNECTION_WINDOW)
        .max_header_list_size(MAX_HEADER_LIST_LEN)
        .max_send_buf_size(HTTP2_SEND_BUFFER)
        .max_pending_accept_reset_streams(MAX_RESET_STREAMS)
        .max_local_error_reset_streams(MAX_ERROR_RESETS)
        .keep_alive_interval(HTTP2_KEEPALIVE_INTERVAL)
        .keep_alive_timeout(HTTP2_KEEPALIVE_TIMEOUT)
        .enable_connect_protocol()
        .serve_connection(TokioIo::new(guarded), service);
    let mut connection = pin!(connection);
    let mut stop = pin!(stopping.wait());
    let mut is_stopping = false;
    let ended = poll_fn(|context| {
        if !is_stopping && stop.as_mut().poll(context).is_ready() {
            is_stopping = true;
            connection.as_mut().graceful_shutdown();
        }
        match connection.as_mut().poll(context) {
            Poll::Pending if flood.is_set() => Poll::Ready(Ok(())),
            polled => polled,
        }
    })
    .await;
    if flood.is_set() {
        increment(&shared.counters.floods);
        tracing::debug!("connection closed: too many HTTP/2 frames that ask for nothing");
    } else if let Err(error) = ended {
        tracing::debug!(%error, "connection ended early");
    }
    tasks.abort_all();
}
