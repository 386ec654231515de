//! The admin listener: metrics, state, and operator actions.
//!
//! It has its own listener, so that public and private endpoints never share an address. [`AdminApi::new`] requires tokens if
//! other machines can connect. Must not know: sockets, command lines, where tokens come from.

mod auth;
mod fleet;
mod index;
mod operator_actions;
mod operator_request;
mod overload_state;
mod routes;
mod state;
mod tokens;

pub use tokens::{AdminTokens, InvalidAdminToken};

use std::fmt;
use std::future::Future;
use std::sync::Arc;

use hyper::header::ACCEPT;
use hyper::{Method, StatusCode};
use tollgate_core::InvalidQuota;
use tollgate_engine::control::UnitAdjustment;
use tollgate_store::Clock;

use crate::gateway::Gateway;
use crate::http::bad_input::echo;
use crate::http::http_api::HttpApi;
use crate::http::response::HttpResponse;
use crate::http::{HttpHandler, HttpLimits, HttpRequest, serve_http};
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    BufferPriority, BufferReservation, DrainOutcome, ListenAddress, Listener, ServerTls,
    ShutdownSignal,
};
use crate::resp::RespServer;
use auth::AdminAuth;
use routes::{AdminEndpoint, AdminRoute};
use tollgate_service::fleet::Membership;
use tollgate_service::metrics::{CertificateStatus, MetricSources, MetricsFormat, gather};

/// The endpoints of the admin listener.
#[derive(Debug)]
pub struct AdminApi<C> {
    app: Arc<HttpApi<C>>,
    resp: Option<Arc<RespServer<C>>>,
    /// Further listeners of the same server, by name.
    other_listeners: Vec<(&'static str, Arc<ListenerCounters>)>,
    /// The gateway, if there is one.
    gateway: Option<Arc<Gateway<C>>>,
    /// The TLS configuration, if there is one.
    tls: Option<Arc<ServerTls>>,
    /// The membership in a fleet, if there is one.
    fleet: Option<Arc<Membership>>,
    guard: AdminAuth,
    /// Triggers when the server starts to drain.
    stopping: Option<ShutdownSignal>,
    counters: ListenerCounters,
}

/// Why the admin listener cannot be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidAdmin {
    /// Other machines could connect, and there are no tokens.
    Unprotected,
    /// Other machines could connect, and this token has fewer than 128 bits: `read` or `operate`.
    WeakToken(&'static str),
    /// Never in practice: a constant quota cannot be built.
    Quota(InvalidQuota),
}

impl<C: Clock + 'static> AdminApi<C> {
    /// The admin endpoints of `app`, to be served at `address`.
    ///
    /// Other machines could connect, and there are no tokens or tokens that can be guessed. A listener that only this machine
    /// can reach accepts such tokens and logs a warning.
    pub fn new(
        app: Arc<HttpApi<C>>,
        address: &ListenAddress,
        tokens: AdminTokens,
    ) -> Result<Self, InvalidAdmin> {
        if !address.is_local_only() && !tokens.is_any_set() {
            return Err(InvalidAdmin::Unprotected);
        }
        if let Some(which) = tokens.weak_token() {
            let weak = InvalidAdmin::WeakToken(which);
            if !address.is_local_only() {
                return Err(weak);
            }
            tracing::warn!("{weak}");
        }
        Ok(Self {
            app,
            resp: None,
            other_listeners: Vec::new(),
            gateway: None,
            tls: None,
            fleet: None,
            guard: AdminAuth::new(tokens).map_err(InvalidAdmin::Quota)?,
            stopping: None,
            counters: ListenerCounters::default(),
        })
    }

    /// Adds the RESP listener.
    #[must_use]
    pub fn with_resp(mut self, resp: Arc<RespServer<C>>) -> Self {
        self.resp = Some(resp);
        self
    }

    /// Adds another listener.
    #[must_use]
    pub fn with_listener(mut self, name: &'static str, counters: Arc<ListenerCounters>) -> Self {
        self.other_listeners.push((name, counters));
        self
    }

    /// Adds the gateway, if there is one.
    #[must_use]
    pub fn with_gateway(mut self, gateway: Option<Arc<Gateway<C>>>) -> Self {
        self.gateway = gateway;
        self
    }

    /// Adds the TLS configuration.
    #[must_use]
    pub fn with_tls(mut self, tls: Option<Arc<ServerTls>>) -> Self {
        self.tls = tls;
        self
    }

    /// Adds the fleet membership.
    #[must_use]
    pub fn with_fleet(mut self, membership: Arc<Membership>) -> Self {
        self.fleet = Some(membership);
        self
    }

    /// Reports not ready once `stopping` triggers.
    #[must_use]
    pub fn with_drain_signal(mut self, stopping: ShutdownSignal) -> Self {
        self.stopping = Some(stopping);
        self
    }

    /// Serves clients of `listener` until `shutdown` completes.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: HttpLimits,
        shutdown: impl Future<Output = ()>,
    ) -> DrainOutcome {
        serve_http(limits, listener, self, shutdown).await
    }

    /// The counters of the listener.
    #[must_use]
    pub const fn counters(&self) -> &ListenerCounters {
        &self.counters
    }

    /// Whether load balancers should send requests. The server decides without a remote store, so only a shutdown makes it
    /// unready, and a stall.
    fn is_ready(&self) -> bool {
        self.stopping
            .as_ref()
            .is_none_or(|stopping| !stopping.is_triggered())
    }

    /// All listeners by name.
    fn listeners(&self) -> Vec<(&'static str, &ListenerCounters)> {
        let mut all = vec![("api", self.app.counters())];
        all.extend(self.resp.as_ref().map(|resp| ("resp", resp.counters())));
        all.extend(
            self.other_listeners
                .iter()
                .map(|(name, counters)| (*name, &**counters)),
        );
        let gateway = self.gateway.as_ref();
        all.extend(gateway.map(|gateway| ("gateway", &**gateway.counters())));
        all.push(("admin", &self.counters));
        all
    }

    fn metrics(&self, request: &HttpRequest<'_>) -> HttpResponse {
        let accept = request.headers.get_all(ACCEPT).iter();
        let format = MetricsFormat::negotiate(accept.filter_map(|field| field.to_str().ok()));
        let listeners = self.listeners().into_iter();
        let listeners: Vec<_> = listeners
            .map(|(name, counters)| (name, counters.counts()))
            .collect();
        let gathered = MetricSources {
            service: &self.app.service,
            descriptor_rules: &self.app.envoy.rule_totals(),
            throttle_store: self.resp.as_ref().map(|resp| resp.store()),
            listeners: &listeners,
            buffered_bytes: (
                self.app.buffers().used() as u64,
                self.app.buffers().capacity() as u64,
            ),
            certificate: self.tls.as_ref().map(|tls| CertificateStatus {
                expires: tls.expires(),
                loads: tls.loads(),
                refusals: tls.failed_reloads(),
            }),
            generation: self.app.envoy.generation(),
            files: self.app.envoy.file_status(),
            quotas: self.app.envoy.quota_counts(),
            gateway: self.gateway.as_ref().map(|gateway| gateway.counts()),
            fleet: self.fleet.as_deref(),
        };
        HttpResponse::text_of_type(format.content_type(), gather(&gathered, format))
    }

    fn ready(&self) -> HttpResponse {
        if self.is_ready() {
            return self.app.health("ready\n");
        }
        HttpResponse::status_problem(StatusCode::SERVICE_UNAVAILABLE, "the server is stopping")
    }

    async fn dispatch(&self, endpoint: AdminEndpoint, request: &HttpRequest<'_>) -> HttpResponse {
        let is_read = !routes::is_write(request.method);
        let answered = match endpoint {
            AdminEndpoint::FrontPage => Ok(index::index_page()),
            AdminEndpoint::Health => Ok(self.app.health("ok\n")),
            AdminEndpoint::Ready => Ok(self.ready()),
            AdminEndpoint::Metrics => Ok(self.metrics(request)),
            AdminEndpoint::Limits => Ok(self.app.list_limits()),
            AdminEndpoint::State => Ok(self.state()),
            AdminEndpoint::Fleet => Ok(self.fleet()),
            AdminEndpoint::Policy => Ok(self.policy()),
            AdminEndpoint::Audit => Ok(self.audit()),
            AdminEndpoint::OpenApi => Ok(index::openapi_document()),
            AdminEndpoint::Switches if is_read => Ok(self.switches()),
            AdminEndpoint::Switches => self.set_switch(request),
            AdminEndpoint::Overrides if is_read => Ok(self.overrides()),
            AdminEndpoint::Overrides => self.change_override(request),
            AdminEndpoint::Blocks if is_read => Ok(self.blocks()),
            AdminEndpoint::Blocks => self.change_block(request),
            AdminEndpoint::Resets => self.reset(request).await,
            AdminEndpoint::Charges => self.adjust(request, UnitAdjustment::Charge).await,
            AdminEndpoint::Refunds => self.adjust(request, UnitAdjustment::Refund).await,
            AdminEndpoint::Reload => self.reload(request).await,
        };
        answered.unwrap_or_else(|bad| {
            HttpResponse::status_problem(StatusCode::BAD_REQUEST, bad.to_string())
        })
    }
}

impl<C: Clock + 'static> HttpHandler for AdminApi<C> {
    fn max_body_len(&self, method: &Method, path: &str) -> usize {
        routes::max_body_len(method, path)
    }

    /// Operators are never refused, so that the kill switch works while clients hold the whole budget.
    fn reserve_buffers(&self) -> BufferReservation {
        BufferReservation::new(Arc::clone(self.app.buffers()), BufferPriority::Operator)
    }

    fn has_fleet(&self) -> bool {
        self.app.service.fleet().is_some()
    }

    async fn handle(&self, request: &HttpRequest<'_>) -> HttpResponse {
        let route = AdminRoute::find(request.path);
        // A client without read permission does not learn which paths exist.
        let required = route.map_or(routes::Permission::Read, |route| {
            route.required_permission(request.method)
        });
        let now = self.app.service.now();
        let authorized = self.guard.authorize(request, required, now, &self.counters);
        if let Err(rejection) = authorized {
            let (why, reply) = *rejection;
            self.app.metrics().record_admin_rejection(why);
            return reply;
        }
        if required != routes::Permission::Public {
            request.peer.progress.mark_established();
        }
        let Some(route) = route else {
            let detail = format!(
                "there is no endpoint at {:?}",
                echo(request.path.as_bytes())
            );
            return HttpResponse::status_problem(StatusCode::NOT_FOUND, detail);
        };
        if !route.allows(request.method) {
            let method = echo(request.method.as_str().as_bytes());
            let detail = format!(
                "{method} is not allowed here; allowed are {}",
                route.methods
            );
            return HttpResponse::status_problem(StatusCode::METHOD_NOT_ALLOWED, detail)
                .allow(route.methods);
        }
        if !request.query.is_empty() {
            let detail = "query: parameters belong in the body";
            return HttpResponse::status_problem(StatusCode::BAD_REQUEST, detail);
        }
        self.dispatch(route.endpoint, request).await
    }

    fn counters(&self) -> &ListenerCounters {
        &self.counters
    }
}

impl fmt::Display for InvalidAdmin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unprotected => f.write_str(
                "the admin listener can be reached from other machines and has no tokens: \
                 set --admin-operate-token-file or --admin-read-token-file, or listen on 127.0.0.1",
            ),
            Self::WeakToken(which) => write!(
                f,
                "the admin {which} token has fewer than 128 bits and can be guessed; make one with `openssl rand -hex 32`"
            ),
            Self::Quota(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidAdmin {}
