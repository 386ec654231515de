//! One address of an upstream: its connections, idle or in use, and one exchange over them.
//!
//! Idle HTTP/1.1 connections are kept in a bounded stack, so that few connections stay warm and the others expire. An
//! address that speaks HTTP/2 has one connection for all requests. Must not know: other addresses, retries, routes.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use hyper::body::Body as _;
use hyper::client::conn::http2;
use hyper::rt::Executor as _;
use hyper::{Request, Response};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::time::timeout_at;
use tollgate_core::Timestamp;
use tollgate_policy::model::UpstreamProtocol;
use tollgate_service::metrics::AddressCounts;

use super::balancer::Candidate;
use super::body::{BodySource, UpstreamBody};
use super::connector::{Connected, Connector, HttpVersions};
use super::failure::{ExchangeError, FailureKind};
use super::health::EndpointHealth;
use super::http1::Http1Connection;
use super::message::{copy_head, to_http1, to_http2};
use super::response_deadline::ResponseDeadline;
use crate::gateway::lazy_timer::LazyTimer;
use crate::gateway::limits::{
    HTTP2_KEEPALIVE_INTERVAL, HTTP2_KEEPALIVE_TIMEOUT, MAX_HEADER_LIST_LEN,
};
use crate::gateway::request_body::RequestBody;
use crate::gateway::stream_tasks::StreamTasks;
use crate::listen::TransferTimer;

/// One address of an upstream.
pub(in crate::gateway) struct Endpoint {
    connector: Connector,
    label: Box<str>,
    weight: u32,
    bounds: PoolBounds,
    open: Arc<AtomicU32>,
    in_flight: AtomicU32,
    /// Idle HTTP/1.1 connections, the one that was used last at the back.
    idle: Mutex<VecDeque<Box<Http1Connection>>>,
    http2: Mutex<Option<http2::SendRequest<RequestBody>>>,
    /// Held while an HTTP/2 connection is made, so that many requests make one.
    connecting: tokio::sync::Mutex<()>,
    speaks_http2: AtomicBool,
    tasks: StreamTasks,
    pub(super) health: EndpointHealth,
}

/// The bounds of the connections to one address.
#[derive(Clone, Copy, Debug)]
pub(super) struct PoolBounds {
    pub(super) max_connections: u32,
    pub(super) max_idle: usize,
    pub(super) keepalive_timeout: Duration,
}

/// The place of one connection among the open ones of its address.
#[derive(Debug)]
pub(super) struct OpenConnection(Arc<AtomicU32>);

/// A request in progress.
#[derive(Debug)]
pub(super) struct InFlight(Arc<Endpoint>);

impl Endpoint {
    pub(super) fn new(
        connector: Connector,
        weight: u32,
        bounds: PoolBounds,
        tasks: StreamTasks,
    ) -> Self {
        let speaks_http2 = connector.address().protocol == UpstreamProtocol::H2c;
        Self {
            label: connector.address().to_string().into(),
            connector,
            weight,
            bounds,
            open: Arc::default(),
            in_flight: AtomicU32::new(0),
            idle: Mutex::default(),
            http2: Mutex::default(),
            connecting: tokio::sync::Mutex::default(),
            speaks_http2: AtomicBool::new(speaks_http2),
            tasks,
            health: EndpointHealth::default(),
        }
    }

    /// The address as text.
    pub(in crate::gateway) fn label(&self) -> &str {
        &self.label
    }

    /// What has been counted.
    pub(super) fn counts(&self, now: Timestamp) -> AddressCounts {
        AddressCounts {
            address: self.label.clone(),
            connections: self.open.load(Ordering::Relaxed).into(),
            in_flight: self.in_flight.load(Ordering::Relaxed).into(),
            is_available: self.health.is_available(now),
            ejections: self.health.ejections(),
        }
    }

    /// Sends a request and returns the response, whose body holds the connection. Its head must arrive before the deadline.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        mut request: Request<RequestBody>,
        versions: HttpVersions,
        deadline: &ResponseDeadline,
        timer: TransferTimer,
    ) -> Result<Response<UpstreamBody>, Box<ExchangeError>> {
        let in_flight = InFlight::new(self);
        let body = |source, connection| UpstreamBody::new(source, connection, in_flight, timer);
        let link = match self.take_idle() {
            Some(connection) => Ok(Link::Http1(connection)),
            // Boxed, because making a connection is large and rare.
            None => match timeout_at(
                deadline.without_body(),
                Box::pin(self.connect_or_share(versions)),
            )
            .await
            {
                Ok(link) => link,
                Err(_elapsed) => Err(FailureKind::Timeout),
            },
        };
        match link {
            Ok(Link::Http1(mut connection)) => {
                to_http1(&mut request);
                let response = connection.send(request, deadline).await?;
                Ok(response.map(|source| body(source, Some(connection))))
            }
            Ok(Link::Http2(mut sender)) => {
                // hyper keeps the request, and a request without a body may be sent again.
                let copy = request.body().is_end_stream().then(|| copy_head(&request));
                to_http2(&mut request, self.connector.address().protocol);
                // Boxed, because its state is large and other requests would carry it.
                let mut sent = Box::pin(sender.try_send_request(request));
                let mut timer = LazyTimer::default();
                let sent = poll_fn(|context| match sent.as_mut().poll(context) {
                    Poll::Ready(sent) => Poll::Ready(Some(sent)),
                    Poll::Pending if deadline.has_passed(&mut timer, context) => Poll::Ready(None),
                    Poll::Pending => Poll::Pending,
                });
                match sent.await {
                    Some(Ok(response)) => {
                        Ok(response.map(|incoming| body(BodySource::Hyper(incoming), None)))
                    }
                    Some(Err(mut error)) => {
                        let unsent = error.take_message();
                        let is_sent = unsent.is_none();
                        let failure = FailureKind::Http(error.into_error());
                        Err(ExchangeError::new(failure, unsent.or(copy), is_sent))
                    }
                    None => Err(ExchangeError::sent(FailureKind::Timeout)),
                }
            }
            Err(failure) => Err(ExchangeError::unsent(failure, Some(request))),
        }
    }

    /// A new connection, or the one that all requests of HTTP/2 share.
    async fn connect_or_share(&self, versions: HttpVersions) -> Result<Link, FailureKind> {
        if versions == HttpVersions::Http1Only || !self.speaks_http2.load(Ordering::Relaxed) {
            return self.connect(versions).await;
        }
        if let Some(sender) = self.http2_sender() {
            return Ok(Link::Http2(sender));
        }
        let _turn = self.connecting.lock().await;
        match self.http2_sender() {
            Some(sender) => Ok(Link::Http2(sender)),
            None => self.connect(versions).await,
        }
    }

    async fn connect(&self, versions: HttpVersions) -> Result<Link, FailureKind> {
        let open = OpenConnection::new(&self.open, self.bounds.max_connections)?;
        let connected = self.connector.connect(versions).await;
        let Connected { stream, is_http2 } = connected.map_err(FailureKind::Connect)?;
        if !is_http2 {
            return Ok(Link::Http1(Box::new(Http1Connection::new(stream, open))));
        }
        self.speaks_http2.store(true, Ordering::Relaxed);
        let (sender, connection) = http2::Builder::new(self.tasks.clone())
            .timer(TokioTimer::new())
            .keep_alive_interval(HTTP2_KEEPALIVE_INTERVAL)
            .keep_alive_timeout(HTTP2_KEEPALIVE_TIMEOUT)
            .max_header_list_size(MAX_HEADER_LIST_LEN)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(FailureKind::Http)?;
        self.tasks.execute(async move {
            let _open = open;
            if let Err(error) = connection.await {
                tracing::debug!(%error, "HTTP/2 connection to an upstream ended early");
            }
        });
        *self.lock_http2() = Some(sender.clone());
        Ok(Link::Http2(sender))
    }

    /// The connection that was used last and can be used again.
    fn take_idle(&self) -> Option<Box<Http1Connection>> {
        loop {
            // The lock is not held while a connection is polled.
            let mut connection = self.lock_idle().pop_back()?;
            let is_fresh = connection.idle_since().elapsed() < self.bounds.keepalive_timeout;
            if is_fresh && connection.is_ready() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection for the next request, if it can take one and there is room.
    pub(super) fn put_idle(&self, mut connection: Box<Http1Connection>) {
        if !connection.become_idle() {
            return;
        }
        let mut idle = self.lock_idle();
        let oldest = (idle.len() >= self.bounds.max_idle).then(|| idle.pop_front());
        idle.push_back(connection);
        drop(idle);
        // Closing a socket is a system call, which needs no lock.
        drop(oldest);
    }

    /// Closes connections that have been idle for too long.
    pub(super) fn close_expired(&self) {
        let keepalive = self.bounds.keepalive_timeout;
        let mut idle = self.lock_idle();
        let fresh = idle
            .iter()
            .position(|one| one.idle_since().elapsed() < keepalive);
        let count = fresh.unwrap_or(idle.len());
        let expired: Vec<_> = idle.drain(..count).collect();
        drop(idle);
        drop(expired);
    }

    fn http2_sender(&self) -> Option<http2::SendRequest<RequestBody>> {
        let sender = self.lock_http2();
        sender
            .as_ref()
            .filter(|sender| !sender.is_closed())
            .cloned()
    }

    fn lock_idle(&self) -> MutexGuard<'_, VecDeque<Box<Http1Connection>>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_http2(&self) -> MutexGuard<'_, Option<http2::SendRequest<RequestBody>>> {
        self.http2.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A connection that can take a request.
enum Link {
    Http1(Box<Http1Connection>),
    Http2(http2::SendRequest<RequestBody>),
}

impl OpenConnection {
    fn new(open: &Arc<AtomicU32>, max: u32) -> Result<Self, FailureKind> {
        let one_more = |count: u32| (count < max).then_some(count.saturating_add(1));
        let (success, failure) = (Ordering::Relaxed, Ordering::Relaxed);
        match open.fetch_update(success, failure, one_more) {
            Ok(_) => Ok(Self(Arc::clone(open))),
            Err(_full) => Err(FailureKind::TooManyConnections),
        }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl InFlight {
    fn new(endpoint: &Arc<Endpoint>) -> Self {
        endpoint.in_flight.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(endpoint))
    }

    pub(super) const fn endpoint(&self) -> &Arc<Endpoint> {
        &self.0
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Candidate for Arc<Endpoint> {
    fn weight(&self) -> u32 {
        self.weight
    }

    fn in_flight(&self) -> u32 {
        self.in_flight.load(Ordering::Relaxed)
    }
}

impl std::fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("address", &self.label)
            .finish_non_exhaustive()
    }
}
