//! The gateway: a reverse proxy that limits requests before it forwards them.
//!
//! `connection` and `http1/` read a client's requests. Each passes `client_requests` (one spelling of host and path), the tower
//! layer (limits) and `forwarder` (route, upstream). `upstream/` has the pools. Routes are reloaded with the policy; a request keeps the routes it began with. Must
//! not know: how requests are decided, sockets, command lines.

mod access_log;
mod body;
mod budgeted_body;
mod client_requests;
mod connection;
mod forwarder;
mod framing_guard;
mod fuzz_request_head;
mod head_timer;
mod header_rules;
mod http1;
mod lazy_timer;
mod limits;
mod path_spelling;
mod request_body;
mod request_framing;
mod request_id;
mod request_target;
mod route_table;
mod slow_stream;
mod stream_tasks;
mod tracked_stream;
mod upload_progress;
mod upstream;
mod websocket;

pub use access_log::{AccessLog, AccessLogFormat, AccessLogOutput, InvalidAccessLogFormat};
#[doc(hidden)]
pub use fuzz_request_head::fuzz_request_head;
pub use limits::GatewayLimits;

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use tokio::task::{JoinSet, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval};
use tollgate_http::{ClientAddressResolver, ForwardedHeader, TrustedProxies};
use tollgate_policy::model::GatewaySpec;
use tollgate_service::RateLimitService;
use tollgate_service::metrics::GatewayCounts;
use tollgate_store::Clock;
use tollgate_tower::{InvalidLayer, TollgateLayer};

use self::access_log::TimedAccessLog;
use self::request_id::RequestIds;
use self::request_target::host_name;
use self::route_table::RouteTable;
use self::stream_tasks::StreamTasks;
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    BufferBudget, ConnectionHandler, DrainOutcome, InvalidTls, Listener, Peer, ShutdownSignal,
    Stream, accept,
};

/// How often the gateway looks for a new policy, due health checks and connections that have expired.
const MAINTENANCE_INTERVAL: Duration = Duration::from_millis(200);

/// A reverse proxy with limits.
pub struct Gateway<C> {
    shared: Arc<GatewayShared<C>>,
}

/// What all connections share.
struct GatewayShared<C> {
    service: Arc<RateLimitService<C>>,
    layer: TollgateLayer<C>,
    table: Arc<ArcSwap<RouteTable>>,
    /// The routes as the policy has them.
    spec: ArcSwap<GatewaySpec>,
    /// Whether the routes come from the policy of the service, and are reloaded with it.
    is_from_policy: bool,
    tasks: StreamTasks,
    trusted: TrustedProxies,
    clients: ClientAddressResolver,
    counters: Arc<ListenerCounters>,
    buffers: Arc<BufferBudget>,
    request_ids: RequestIds,
    access_log: Option<Arc<TimedAccessLog>>,
}

/// Why a gateway cannot start.
#[derive(Debug)]
pub enum InvalidGateway {
    /// A TLS file of an upstream.
    Tls(InvalidTls),
    /// The rate limit layer.
    Layer(InvalidLayer),
}

impl<C: Clock + 'static> Gateway<C> {
    /// A gateway with these routes, and the limits of the service.
    ///
    /// # Errors
    /// A TLS file of an upstream cannot be used.
    pub fn new(
        service: Arc<RateLimitService<C>>,
        spec: &GatewaySpec,
        trusted: TrustedProxies,
        buffers: Arc<BufferBudget>,
    ) -> Result<Self, InvalidGateway> {
        Self::build(service, spec, trusted, buffers, None)
    }

    /// The same, with a log of all requests.
    ///
    /// # Errors
    /// As for [`new`](Self::new).
    pub fn with_access_log(
        service: Arc<RateLimitService<C>>,
        spec: &GatewaySpec,
        trusted: TrustedProxies,
        buffers: Arc<BufferBudget>,
        log: AccessLog,
    ) -> Result<Self, InvalidGateway> {
        Self::build(service, spec, trusted, buffers, Some(log))
    }

    fn build(
        service: Arc<RateLimitService<C>>,
        spec: &GatewaySpec,
        trusted: TrustedProxies,
        buffers: Arc<BufferBudget>,
        log: Option<AccessLog>,
    ) -> Result<Self, InvalidGateway> {
        let counters = Arc::<ListenerCounters>::default();
        let tasks = StreamTasks::new(Arc::clone(&counters));
        let table = RouteTable::new(spec, None, &tasks, service.overload_targets());
        let table = Arc::new(ArcSwap::from_pointee(table.map_err(InvalidGateway::Tls)?));
        // The gateway resolves the client's address itself, because the forwarding fields need it too.
        let layer = match log {
            Some(_) => TollgateLayer::builder().report_decisions(),
            None => TollgateLayer::builder(),
        };
        let routes = Arc::clone(&table);
        let layer = layer.overload_targets(move |headers, uri| {
            let table = routes.load();
            let route = table.find(&host_name(headers), uri.path());
            route.map(|route| Arc::clone(route.overload()))
        });
        let layer = layer.build_with_service(Arc::clone(&service));
        let access_log = log.map(|log| {
            let service = Arc::clone(&service);
            Arc::new(TimedAccessLog::new(log, move || service.now()))
        });
        let of_policy = service
            .reloader()
            .map(|reloader| reloader.engine().current_policy().1);
        let is_from_policy = of_policy.is_some_and(|policy| policy.gateway.as_ref() == Some(spec));
        let clients = ClientAddressResolver::behind_proxies(
            ForwardedHeader::XForwardedFor,
            Vec::from(trusted.clone()),
        );
        Ok(Self {
            shared: Arc::new(GatewayShared {
                layer: layer.map_err(InvalidGateway::Layer)?,
                service,
                table,
                spec: ArcSwap::from_pointee(spec.clone()),
                is_from_policy,
                tasks,
                clients,
                trusted,
                counters,
                buffers,
                request_ids: RequestIds::new(),
                access_log,
            }),
        })
    }

    /// Serves clients of `listener` until `shutdown` completes, then lets requests in progress finish.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: GatewayLimits,
        shutdown: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let protocol = Arc::new(GatewayProtocol {
            limits,
            shared: Arc::clone(&self.shared),
        });
        tokio::select! {
            outcome = accept(listener, protocol, limits.listener, shutdown) => outcome,
            never = self.shared.maintain() => match never {},
        }
    }

    /// What the routes and upstreams have counted.
    #[must_use]
    pub fn counts(&self) -> GatewayCounts {
        self.shared.table.load().counts(self.shared.service.now())
    }

    /// The counters of the listener.
    #[must_use]
    pub fn counters(&self) -> &Arc<ListenerCounters> {
        &self.shared.counters
    }
}

impl<C: Clock + 'static> GatewayShared<C> {
    /// Follows the policy, checks the health of upstreams and closes idle connections, for as long as it is polled.
    async fn maintain(self: &Arc<Self>) -> std::convert::Infallible {
        let mut checks = JoinSet::new();
        let mut ticks = interval(MAINTENANCE_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            while checks.try_join_next().is_some() {}
            self.follow_policy().await;
            let now = self.service.now();
            for upstream in self.table.load().upstreams() {
                upstream.close_expired();
                let Some(check) = upstream.due_check(now) else {
                    continue;
                };
                for endpoint in upstream.endpoints() {
                    let (upstream, endpoint) = (Arc::clone(upstream), Arc::clone(endpoint));
                    let check = check.clone();
                    checks.spawn(async move { upstream.check_health(&endpoint, &check).await });
                }
            }
        }
    }

    /// Replaces the routes if the policy has changed them.
    async fn follow_policy(self: &Arc<Self>) {
        let reloader = self.service.reloader().filter(|_| self.is_from_policy);
        let Some(reloader) = reloader else { return };
        let (generation, policy) = reloader.engine().current_policy();
        let Some(spec) = policy.gateway.clone() else {
            return;
        };
        if **self.spec.load() == spec {
            return;
        }
        let shared = Arc::clone(self);
        // TLS files are read, and a file system may be slow.
        let replacing = spawn_blocking(move || shared.replace_routes(generation, spec));
        if let Err(error) = replacing.await {
            tracing::error!(%error, "replacing the gateway routes panicked");
        }
    }

    /// Replaces the routes. If they cannot be used, the routes before stay.
    fn replace_routes(&self, generation: u64, spec: GatewaySpec) {
        let (before, targets) = (self.table.load(), self.service.overload_targets());
        match RouteTable::new(&spec, Some(&before), &self.tasks, targets) {
            Ok(table) => {
                self.table.store(Arc::new(table));
                tracing::info!(
                    generation,
                    routes = spec.routes.len(),
                    "gateway routes loaded"
                );
            }
            Err(error) => {
                tracing::error!(%error, generation, "gateway routes refused, previous routes stay in use");
            }
        }
        self.spec.store(Arc::new(spec));
    }
}

/// The gateway as a protocol for the accept loop.
struct GatewayProtocol<C> {
    limits: GatewayLimits,
    shared: Arc<GatewayShared<C>>,
}

impl<C: Clock + 'static> ConnectionHandler for GatewayProtocol<C> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static {
        let shared = Arc::clone(&self.shared);
        connection::serve(shared, self.limits, stream, peer, stopping)
    }

    fn counters(&self) -> &ListenerCounters {
        &self.shared.counters
    }
}

impl<C> fmt::Debug for Gateway<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway")
            .field("spec", &self.shared.spec)
            .finish_non_exhaustive()
    }
}

impl fmt::Display for InvalidGateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tls(error) => error.fmt(f),
            Self::Layer(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidGateway {}
