//! Forwards one admitted request: route, upstream, and the fields on the way there and back.
//!
//! It is the inner service of the rate limit layer, so it never sees a denied request. Must not know: limits, how clients
//! are connected.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::http::request::Parts;
use hyper::http::uri::PathAndQuery;
use hyper::upgrade::OnUpgrade;
use hyper::{Request, Response, StatusCode, Uri, Version};
use tollgate_store::Clock;
use tollgate_tower::RequestPermit;
use tower_service::Service;

use super::GatewayShared;
use super::access_log::ExchangeRecord;
use super::body::{GatewayBody, problem};
use super::head_timer::OpenExchange;
use super::header_rules::{
    ClientConnection, add_prefix, add_via, remove_hop_by_hop, rewrite_forwarded,
};
use super::path_spelling::lenient_path;
use super::request_body::RequestBody;
use super::request_target::host_name;
use super::route_table::Route;
use super::upstream::{BODY_TOO_LONG, HttpVersions, UpstreamBody};
use super::websocket::{TunnelPlace, add_upgrade_fields, is_accepted, tunnel};
use crate::listen::{BufferBudget, MIN_TRANSFER_RATE, TransferTimer};

/// The body of a request on its way through the layer, with what the forwarder needs to know. An extension of the request would
/// cost two allocations.
#[derive(Debug)]
pub(super) struct AdmissionBody {
    /// `None` if the request was read without hyper: it has no body.
    pub(super) incoming: Option<Incoming>,
    /// Dropped after the body, so that its connection is busy until then.
    pub(super) exchange: Option<OpenExchange>,
    pub(super) context: RequestContext,
}

/// What the forwarder needs to know of the client's connection.
#[derive(Debug)]
pub(super) struct RequestContext {
    pub(super) connection: Arc<ClientConnection>,
    /// The version in which the request was received.
    pub(super) received: Version,
    /// Where a WebSocket runs, if the request asks for one.
    pub(super) websocket: Option<TunnelPlace>,
    pub(super) body_timeout: std::time::Duration,
    /// Where the access log learns of the exchange, if there is one.
    pub(super) record: Option<Arc<ExchangeRecord>>,
}

/// Forwards requests.
pub(super) struct Forwarder<C> {
    shared: Arc<GatewayShared<C>>,
}

impl<C: Clock + 'static> Forwarder<C> {
    pub(super) const fn new(shared: Arc<GatewayShared<C>>) -> Self {
        Self { shared }
    }

    async fn forward(self, request: Request<AdmissionBody>) -> Response<GatewayBody> {
        let (head, body) = request.into_parts();
        let AdmissionBody {
            incoming,
            exchange,
            context,
        } = body;
        let table = self.shared.table.load_full();
        let host = host_name(&head.headers);
        let path = head.uri.path();
        let Some(route) = table.find(&host, path) else {
            return problem(
                StatusCode::NOT_FOUND,
                "there is no route for this host and path",
            );
        };
        // A path that lenient servers read differently must not lead them past a route.
        if let Some(lenient) = lenient_path(path)
            && !table
                .find(&host, &lenient)
                .is_some_and(|other| Arc::ptr_eq(other, route))
        {
            return problem(StatusCode::BAD_REQUEST, "path: servers read it differently");
        }
        let route = Arc::clone(route);
        drop(host);
        if let Some(record) = &context.record {
            record.set_route(route.label());
        }
        let response = self
            .exchange(&route, head, (incoming, exchange), &context)
            .await;
        route.record_response(response.status());
        response
    }

    async fn exchange(
        &self,
        route: &Arc<Route>,
        mut head: Parts,
        (incoming, exchange): (Option<Incoming>, Option<OpenExchange>),
        context: &RequestContext,
    ) -> Response<GatewayBody> {
        let upgrade = head.extensions.remove::<OnUpgrade>();
        let permit = head.extensions.remove::<RequestPermit>();
        rewrite_forwarded(&mut head.headers, &context.connection);
        if !set_forwarded_target(route, &mut head) {
            return problem(StatusCode::BAD_REQUEST, "target: it is not a path");
        }
        add_via(&mut head.headers, context.received);
        route.request_headers.apply(&mut head.headers);
        let upstream = &route.upstream;
        let deadline = upstream.deadline();
        let versions = match &context.websocket {
            None => HttpVersions::Any,
            Some(_) => {
                add_upgrade_fields(&mut head.headers);
                HttpVersions::Http1Only
            }
        };
        let body = match (&context.websocket, incoming) {
            (None, Some(incoming)) => {
                // gRPC has streams that say little for long.
                let can_be_grpc = context.received == Version::HTTP_2 && upstream.can_have_http2();
                let timer = TransferTimer::new(context.body_timeout, deadline)
                    .with_min_rate((!can_be_grpc).then_some(MIN_TRANSFER_RATE));
                let buffers = &self.shared.buffers;
                RequestBody::new(incoming, timer, route.max_body_len, exchange, buffers)
            }
            // What follows the head of a WebSocket belongs to the tunnel.
            (None, None) | (Some(_), _) => Ok(RequestBody::Empty),
        };
        let Ok(body) = body else {
            return problem(StatusCode::PAYLOAD_TOO_LARGE, BODY_TOO_LONG);
        };
        let mut request = Request::new(body);
        *request.method_mut() = head.method;
        *request.uri_mut() = head.uri;
        *request.headers_mut() = head.headers;
        let now = || self.shared.service.now();
        let record = context.record.as_deref();
        let sent = upstream.send(request, versions, deadline, record, now);
        let response = match sent.await {
            Ok(response) => response,
            Err(failure) => return problem(failure.status(), failure.detail()),
        };
        respond(
            route,
            response,
            context,
            &self.shared.buffers,
            upgrade,
            permit,
        )
    }
}

/// Sets the path that the upstream gets. Returns whether it is one.
fn set_forwarded_target(route: &Route, head: &mut Parts) -> bool {
    let (path, prefix) = route.forwarded_path(head.uri.path());
    let Some(prefix) = prefix else { return true };
    let target = match head.uri.query() {
        Some(query) => format!("{path}?{query}"),
        None => path.to_owned(),
    };
    let Ok(target) = PathAndQuery::from_maybe_shared(Bytes::from(target)) else {
        return false;
    };
    head.uri = Uri::from(target);
    add_prefix(&mut head.headers, prefix);
    true
}

/// The response for the client. A WebSocket begins its tunnel.
fn respond(
    route: &Arc<Route>,
    response: Response<UpstreamBody>,
    context: &RequestContext,
    buffers: &Arc<BufferBudget>,
    upgrade: Option<OnUpgrade>,
    permit: Option<RequestPermit>,
) -> Response<GatewayBody> {
    let received = response.version();
    let (mut head, mut body) = response.into_parts();
    let is_websocket = is_accepted(head.status, &head.headers);
    remove_hop_by_hop(&mut head.headers);
    add_via(&mut head.headers, received);
    route.response_headers.apply(&mut head.headers);
    head.version = Version::HTTP_11;
    if head.status != StatusCode::SWITCHING_PROTOCOLS {
        return Response::from_parts(head, GatewayBody::upstream(body, buffers));
    }
    let place = context.websocket.as_ref().filter(|_| is_websocket);
    let (Some(place), Some(upgrade), Some(connection)) = (place, upgrade, body.take_connection())
    else {
        return problem(
            StatusCode::BAD_GATEWAY,
            "the upstream switched to a protocol that nobody asked for",
        );
    };
    let idle_timeout = route.upstream.idle_timeout();
    place.start(tunnel(upgrade, connection, idle_timeout, (permit, body)));
    add_upgrade_fields(&mut head.headers);
    Response::from_parts(head, GatewayBody::empty())
}

impl<C: Clock + 'static> Service<Request<AdmissionBody>> for Forwarder<C> {
    type Response = Response<GatewayBody>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<GatewayBody>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<AdmissionBody>) -> Self::Future {
        let forwarder = self.clone();
        Box::pin(async move { Ok(forwarder.forward(request).await) })
    }
}

impl<C> Clone for Forwarder<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}
