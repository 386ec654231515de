//! One connection of a client: HTTP/1.1 or HTTP/2, told apart by its first bytes, and each request on it.
//!
//! A request is normalized, then limited, then forwarded. Must not know: routes, upstreams, sockets.

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode, Version};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tollgate_store::Clock;
use tollgate_tower::{DecisionInfo, PeerAddress, ResponseBody, TollgateService};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::GatewayShared;
use super::access_log::{ExchangeRecord, LoggedBody, RequestRecord};
use super::body::{GatewayBody, problem};
use super::forwarder::{AdmissionBody, Forwarder, RequestContext};
use super::framing_guard::FramingGuard;
use super::head_timer::{HeadTimer, IdleAction, OpenExchange, TrackedBody};
use super::header_rules::{ClientConnection, address_field, remove_hop_by_hop};
use super::limits::{
    GatewayLimits, HTTP2_CONNECTION_WINDOW, HTTP2_KEEPALIVE_INTERVAL, HTTP2_KEEPALIVE_TIMEOUT,
    HTTP2_SEND_BUFFER, HTTP2_WINDOW, MAX_ERROR_RESETS, MAX_FIELDS, MAX_HEAD_LEN,
    MAX_HEADER_LIST_LEN, MAX_RESET_STREAMS,
};
use super::request_id::X_REQUEST_ID;
use super::request_target::normalize;
use super::slow_stream::TimedStreams;
use super::stream_tasks::StreamTasks;
use super::tracked_stream::TrackedStream;
use super::websocket::{ConnectionTunnel, TunnelPlace, take_websocket, to_http2_answer};
use crate::grpc::frame_guard::{FloodSignal, FrameGuard};
use crate::listen::counters::increment;
use crate::listen::{
    BufferPriority, BufferReservation, LocalEndpoint, Peer, PrefixedStream, ShutdownSignal, Stream,
    confirmed_timeout,
};

/// The response to a head that did not arrive in time. hyper would close the connection without one.
const HEAD_TIMEOUT: &[u8] =
    b"HTTP/1.1 408 Request Timeout\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
/// The first bytes of an HTTP/2 connection.
const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

type LimitedBody<C> = Either<GatewayBody, ResponseBody<GatewayBody, C>>;
type ClientResponse<C> = Response<TrackedBody<LoggedBody<LimitedBody<C>>>>;

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
        false => Box::pin(serve_http1(client, stream, stopping)).await,
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

async fn serve_http1<C: Clock + 'static>(
    client: ClientRequests<C>,
    stream: PrefixedStream<Stream>,
    stopping: ShutdownSignal,
) {
    let (shared, peer) = (Arc::clone(&client.shared), Arc::clone(&client.peer));
    let tunnel = ConnectionTunnel::default();
    let place = TunnelPlace::Connection(tunnel.clone());
    let mut timer = HeadTimer::new(client.limits.header_timeout, client.limits.park_after);
    let tracker = timer.tracker();
    let guard = FramingGuard::new(tunnel.clone());
    let mut stream = TrackedStream::new(stream, guard, tracker.clone());
    let mut service = service_fn(move |request| {
        let exchange = Some(tracker.begin());
        client.clone().handle(request, place.clone(), exchange)
    });
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
        // hyper's buffers take 16 KiB, and an idle connection needs none.
        let Some(parts) = connection.into_parts() else {
            break Ok(());
        };
        (stream, service) = (parts.io.into_inner(), parts.service);
        let has_begun = !parts.read_buf.is_empty();
        if action == IdleAction::Close {
            // A client that has begun a head waits for a response.
            if has_begun && !timer.has_unsent() {
                log_refused(&shared, &peer, StatusCode::REQUEST_TIMEOUT);
                send_head_timeout(&mut stream).await;
            }
            break Ok(());
        }
        if has_begun {
            stream.unread(parts.read_buf);
            continue;
        }
        // Empty, but it still owns hyper's buffer.
        drop(parts.read_buf);
        match wait_for_request(&mut stream, &mut timer, stop.as_mut()).await {
            ParkedEnd::Request => {}
            ParkedEnd::Stopping => is_stopping = true,
            ParkedEnd::Closed => break Ok(()),
        }
    };
    if let Err(error) = ended {
        log_early_end(&shared, &peer, &error);
    }
    if let Some(tunnel) = tunnel.take() {
        tunnel.await;
    }
}

fn http1_builder() -> http1::Builder {
    let mut builder = http1::Builder::new();
    // The timer of hyper is made anew for every request.
    builder
        .header_read_timeout(None::<Duration>)
        .max_buf_size(MAX_HEAD_LEN)
        .max_headers(MAX_FIELDS);
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
fn log_early_end<C>(shared: &GatewayShared<C>, peer: &Peer, error: &hyper::Error) {
    tracing::debug!(%error, "connection ended early");
    match (error.is_parse_too_large(), error.is_parse()) {
        (true, _) => log_refused(shared, peer, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE),
        (false, true) => log_refused(shared, peer, StatusCode::BAD_REQUEST),
        (false, false) => {}
    }
}

/// Logs a request whose head was refused. It never reached the service.
fn log_refused<C>(shared: &GatewayShared<C>, peer: &Peer, status: StatusCode) {
    if let Some(log) = &shared.access_log {
        RequestRecord::write_unreadable(log, peer.ip(), has_tls(peer), status);
    }
}

const fn has_tls(peer: &Peer) -> bool {
    matches!(peer.local, LocalEndpoint::Tls(_))
}

/// Why a connection without buffers is no longer idle.
enum ParkedEnd {
    Request,
    Stopping,
    /// The client has left, or did not send a request in time.
    Closed,
}

/// Waits for the first bytes of a request without buffers.
async fn wait_for_request<S: AsyncRead + Unpin>(
    stream: &mut TrackedStream<S>,
    timer: &mut HeadTimer,
    mut stop: Pin<&mut impl Future<Output = ()>>,
) -> ParkedEnd {
    poll_fn(|context| {
        if stop.as_mut().poll(context).is_ready() {
            return Poll::Ready(ParkedEnd::Stopping);
        }
        match stream.poll_fill(context) {
            Poll::Ready(Ok(true)) => Poll::Ready(ParkedEnd::Request),
            Poll::Ready(_) => Poll::Ready(ParkedEnd::Closed),
            Poll::Pending => match timer.next_action(false, context) {
                IdleAction::Close => Poll::Ready(ParkedEnd::Closed),
                IdleAction::Park | IdleAction::Wait => Poll::Pending,
            },
        }
    })
    .await
}

async fn serve_http2<C: Clock + 'static>(
    client: ClientRequests<C>,
    stream: PrefixedStream<Stream>,
    stopping: ShutdownSignal,
) {
    let (shared, limits) = (Arc::clone(&client.shared), client.limits);
    let tasks = StreamTasks::new(Arc::clone(&shared.counters));
    let place = TunnelPlace::Stream(tasks.clone());
    let service = service_fn(move |request| client.clone().handle(request, place.clone(), None));
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

/// The requests of one client.
struct ClientRequests<C> {
    shared: Arc<GatewayShared<C>>,
    limited: TollgateService<Forwarder<C>, C>,
    limits: GatewayLimits,
    peer: Arc<Peer>,
    /// The two ends of the connection, if no proxy before it is believed.
    connection: ClientConnection,
}

impl<C> Clone for ClientRequests<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            limited: self.limited.clone(),
            limits: self.limits,
            peer: Arc::clone(&self.peer),
            connection: self.connection.clone(),
        }
    }
}

impl<C: Clock + 'static> ClientRequests<C> {
    fn new(shared: Arc<GatewayShared<C>>, limits: GatewayLimits, peer: Peer) -> Self {
        let forwarder = Forwarder::new(Arc::clone(&shared));
        let address: IpAddr = peer.ip();
        let connection = ClientConnection {
            peer: address,
            peer_field: address_field(address),
            client: address.to_canonical(),
            is_trusted: shared.trusted.contains(address),
            has_tls: has_tls(&peer),
        };
        Self {
            connection,
            limited: shared.layer.layer(forwarder),
            shared,
            limits,
            peer: Arc::new(peer),
        }
    }

    /// Normalizes, limits and forwards one request, and logs it if requests are logged.
    async fn handle(
        self,
        request: Request<Incoming>,
        place: TunnelPlace,
        exchange: Option<OpenExchange>,
    ) -> Result<ClientResponse<C>, Infallible> {
        self.peer.progress.mark_established();
        let received = request.version();
        let (mut head, body) = request.into_parts();
        let id = self.shared.request_ids.take_or_make(&mut head.headers);
        // Dropping it writes the line, also if the client leaves while this future waits.
        let mut record = self.shared.access_log.as_ref().map(|log| {
            let connection = self.connection(&head.headers);
            let addresses = (connection.peer, connection.client);
            RequestRecord::start(log, addresses, connection.has_tls, &head, &id)
        });
        let exchange_record = record.as_ref().map(|record| Arc::clone(record.exchange()));
        let body = (body, exchange.clone());
        let response = self.respond(head, body, place, exchange_record).await;
        let mut response = finish(response, id, received);
        if let Some(record) = &mut record {
            let decision = response.extensions_mut().remove::<DecisionInfo>();
            record.set_response(response.status(), response.headers(), decision);
        }
        Ok(response.map(|body| TrackedBody::new(LoggedBody::new(body, record), exchange)))
    }

    async fn respond(
        mut self,
        mut head: Parts,
        (incoming, exchange): (Incoming, Option<OpenExchange>),
        place: TunnelPlace,
        record: Option<Arc<ExchangeRecord>>,
    ) -> Response<LimitedBody<C>> {
        let received = head.version;
        if let Err((status, detail)) = normalize(&mut head) {
            return problem(status, detail).map(Either::Left);
        }
        let is_websocket = take_websocket(&mut head);
        if !is_websocket && head.method == hyper::Method::CONNECT {
            let detail = "method: CONNECT is only for WebSockets";
            return problem(StatusCode::METHOD_NOT_ALLOWED, detail).map(Either::Left);
        }
        remove_hop_by_hop(&mut head.headers);
        let connection = self.connection(&head.headers);
        head.extensions.insert(PeerAddress(connection.client));
        let body = AdmissionBody {
            incoming,
            exchange,
            context: RequestContext {
                connection,
                received,
                websocket: is_websocket.then_some(place),
                body_timeout: self.limits.body_timeout,
                record,
            },
        };
        match self.limited.call(Request::from_parts(head, body)).await {
            Ok(response) => response.map(Either::Right),
            Err(never) => match never {},
        }
    }

    /// The two ends of the connection. A trusted proxy names the client.
    fn connection(&self, headers: &hyper::HeaderMap) -> ClientConnection {
        let mut connection = self.connection.clone();
        if connection.is_trusted {
            let clients = &self.shared.clients;
            let lines = clients.field().map(|field| headers.get_all(field));
            let lines = lines.into_iter().flatten().map(HeaderValue::as_bytes);
            connection.client = clients.resolve(connection.peer, lines).address;
        }
        connection
    }
}

/// The last changes of a response.
fn finish<B>(mut response: Response<B>, id: HeaderValue, received: Version) -> Response<B> {
    response.headers_mut().insert(X_REQUEST_ID, id);
    if received == Version::HTTP_2 && response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let mut status = response.status();
        to_http2_answer(&mut status, response.headers_mut());
        *response.status_mut() = status;
    }
    response
}
