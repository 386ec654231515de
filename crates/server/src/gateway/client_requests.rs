//! The requests of one client: each is normalized, then limited, then forwarded, and logged if requests are logged.
//!
//! Must not know: how requests are read and responses are written, routes, upstreams, sockets.

use std::net::IpAddr;
use std::sync::Arc;

use http_body_util::Either;
use hyper::body::Incoming;
use hyper::header::HeaderValue;
use hyper::http::request::Parts;
use hyper::{Request, Response, StatusCode, Version};
use tollgate_store::Clock;
use tollgate_tower::{DecisionInfo, PeerAddress, ResponseBody, TollgateService};
use tower_layer::Layer as _;
use tower_service::Service as _;

use super::GatewayShared;
use super::access_log::{ExchangeRecord, LoggedBody, RequestRecord};
use super::body::{GatewayBody, problem};
use super::forwarder::{AdmissionBody, Forwarder, RequestContext};
use super::head_timer::OpenExchange;
use super::header_rules::{ClientConnection, address_field, remove_hop_by_hop};
use super::limits::GatewayLimits;
use super::request_id::X_REQUEST_ID;
use super::request_target::normalize;
use super::websocket::{TunnelPlace, take_websocket, to_http2_answer};
use crate::listen::{LocalEndpoint, Peer};

type LimitedBody<C> = Either<GatewayBody, ResponseBody<GatewayBody, C>>;
/// The body of a response to a client.
pub(super) type ClientBody<C> = LoggedBody<LimitedBody<C>>;

/// What belongs to a request that hyper has read.
pub(super) struct HyperRequest {
    pub(super) body: Incoming,
    /// Where a WebSocket runs.
    pub(super) place: TunnelPlace,
    /// Kept until the body is dropped. `None` for a stream of HTTP/2.
    pub(super) exchange: Option<OpenExchange>,
}

/// The requests of one client.
pub(super) struct ClientRequests<C> {
    shared: Arc<GatewayShared<C>>,
    limited: TollgateService<Forwarder<C>, C>,
    limits: GatewayLimits,
    peer: Arc<Peer>,
    /// The two ends of the connection, if no proxy before it is believed.
    connection: Arc<ClientConnection>,
}

impl<C> Clone for ClientRequests<C> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
            limited: self.limited.clone(),
            limits: self.limits,
            peer: Arc::clone(&self.peer),
            connection: Arc::clone(&self.connection),
        }
    }
}

impl<C: Clock + 'static> ClientRequests<C> {
    pub(super) fn new(shared: Arc<GatewayShared<C>>, limits: GatewayLimits, peer: Peer) -> Self {
        let forwarder = Forwarder::new(Arc::clone(&shared));
        let address: IpAddr = peer.ip();
        let connection = ClientConnection {
            peer: address,
            peer_field: address_field(address),
            client: address.to_canonical(),
            is_trusted: shared.trusted.contains(address),
            has_tls: matches!(peer.local, LocalEndpoint::Tls(_)),
        };
        Self {
            limited: shared.layer.layer(forwarder).with_peer(connection.client),
            connection: Arc::new(connection),
            shared,
            limits,
            peer: Arc::new(peer),
        }
    }

    pub(super) const fn shared(&self) -> &Arc<GatewayShared<C>> {
        &self.shared
    }

    pub(super) const fn limits(&self) -> &GatewayLimits {
        &self.limits
    }

    /// Logs a request whose head was refused. Nobody else sees it.
    pub(super) fn log_refused(&self, status: StatusCode) {
        if let Some(log) = &self.shared.access_log {
            let has_tls = self.connection.has_tls;
            RequestRecord::write_unreadable(log, self.peer.ip(), has_tls, status);
        }
    }

    /// Normalizes, limits and forwards one request, and logs it if requests are logged. Without `by_hyper` it has no body.
    pub(super) async fn handle(
        &mut self,
        mut head: Parts,
        by_hyper: Option<HyperRequest>,
    ) -> Response<ClientBody<C>> {
        self.peer.progress.mark_established();
        let received = head.version;
        let id = self.shared.request_ids.take_or_make(&mut head.headers);
        // Dropping it writes the line, also if the client leaves while this future waits.
        let mut record = self.shared.access_log.as_ref().map(|log| {
            let connection = self.connection(&head.headers);
            let addresses = (connection.peer, connection.client);
            RequestRecord::start(log, addresses, connection.has_tls, &head, &id)
        });
        let exchange_record = record.as_ref().map(|record| Arc::clone(record.exchange()));
        let response = self.respond(head, by_hyper, exchange_record).await;
        let mut response = finish(response, id, received);
        if let Some(record) = &mut record {
            let decision = response.extensions_mut().remove::<DecisionInfo>();
            record.set_response(response.status(), response.headers(), decision);
        }
        response.map(|body| LoggedBody::new(body, record))
    }

    async fn respond(
        &mut self,
        mut head: Parts,
        by_hyper: Option<HyperRequest>,
        record: Option<Arc<ExchangeRecord>>,
    ) -> Response<LimitedBody<C>> {
        let received = head.version;
        if let Err((status, detail)) = normalize(&mut head) {
            return problem(status, detail).map(Either::Left);
        }
        let is_websocket = by_hyper.is_some() && take_websocket(&mut head);
        if !is_websocket && head.method == hyper::Method::CONNECT {
            let detail = "method: CONNECT is only for WebSockets";
            return problem(StatusCode::METHOD_NOT_ALLOWED, detail).map(Either::Left);
        }
        remove_hop_by_hop(&mut head.headers);
        let connection = self.connection(&head.headers);
        // Without a proxy in between, the layer knows the client.
        if connection.client != self.connection.client {
            head.extensions.insert(PeerAddress(connection.client));
        }
        let (incoming, place, exchange) = match by_hyper {
            Some(request) => (Some(request.body), Some(request.place), request.exchange),
            None => (None, None, None),
        };
        let body = AdmissionBody {
            incoming,
            exchange,
            context: RequestContext {
                connection,
                received,
                websocket: place.filter(|_| is_websocket),
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
    fn connection(&self, headers: &hyper::HeaderMap) -> Arc<ClientConnection> {
        let clients = &self.shared.clients;
        let field = clients.field().filter(|_| self.connection.is_trusted);
        let Some(field) = field.filter(|field| headers.contains_key(*field)) else {
            return Arc::clone(&self.connection);
        };
        let lines = headers.get_all(field).iter().map(HeaderValue::as_bytes);
        Arc::new(ClientConnection {
            client: clients.resolve(self.connection.peer, lines).address,
            ..ClientConnection::clone(&self.connection)
        })
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
