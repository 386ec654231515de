//! The connection to the shared store, and the tasks of a fleet node: maintenance and membership.
//!
//! Must not know: which store it is, what is shared.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tollgate_envoy::EnvoyService;
use tollgate_fleet::Fleet;
use tollgate_redis::RedisRegister;
use tollgate_server::HttpApi;
use tollgate_server::fleet::{FleetConnection, StoreMonitor};
use tollgate_server::listen::{ShutdownSignal, ShutdownTrigger};
use tollgate_service::Secret;
use tollgate_service::fleet::{FleetMaintenance, LocalNode, Membership};
use tollgate_store::register::Register;
use tollgate_store::{Clock as _, SystemClock};

use super::settings::Options;

/// The timeout of leaving the fleet. Other nodes detect a missing node anyway.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// This process as a node of a fleet.
#[derive(Debug)]
pub(super) struct FleetHandle {
    pub(super) shared: FleetConnection,
    pub(super) membership: Arc<Membership>,
}

/// The background tasks of a fleet node.
#[derive(Debug)]
pub(super) struct FleetTasks {
    fleet: Arc<Fleet>,
    app: Arc<HttpApi<SystemClock>>,
    /// Tasks that run until they are aborted.
    maintenance: JoinSet<()>,
    membership: JoinSet<()>,
    stop: ShutdownTrigger,
}

/// Connects to the shared store, if `--redis` is set. The store need not be reachable yet.
pub(super) fn connect(
    options: &Options,
    secret: Option<Secret>,
    runtime: &Runtime,
) -> Result<Option<FleetHandle>, Box<dyn Error>> {
    if !options.fleet.has_redis() {
        return Ok(None);
    }
    let Some(secret) = secret else {
        return Err(
            "--redis requires a fleet secret, because with random secrets each process would count by itself: \
             set --fleet-secret-file or TOLLGATE_FLEET_SECRET to the same value on all nodes"
                .into(),
        );
    };
    let names = tollgate_redis::KeyHashSecret::new(secret.derive_key_name_secret());
    let Some(store) = options.fleet.redis_options(names)? else {
        return Ok(None);
    };
    let connecting = FleetConnection::connect(store, SystemClock::new().now());
    let shared = runtime
        .block_on(connecting)
        .map_err(|error| format!("--redis: {error}"))?;
    let settings = options.fleet.membership();
    match settings.nodes {
        Some(nodes) => shared.fleet().set_nodes(nodes.get()),
        None => tracing::warn!(
            "--fleet-nodes is not set; without the shared store each node admits half of every limit until it has seen \
             other nodes"
        ),
    }
    if !shared.store().is_connected() {
        tracing::warn!("shared store is unreachable; starting without it");
    }
    let membership = Membership::new(secret, settings);
    Ok(Some(FleetHandle { shared, membership }))
}

impl FleetHandle {
    /// Joins the fleet. Waits until the operator changes of other nodes are loaded, or until the store has failed to answer.
    pub(super) async fn join(&self, app: &Arc<HttpApi<SystemClock>>) -> FleetTasks {
        let engine = Arc::clone(app.engine());
        let mut maintenance = JoinSet::new();
        let monitor = Arc::new(StoreMonitor::new(&self.shared));
        maintenance.spawn(monitor.run(move || engine.store().now()));
        let leases = FleetMaintenance::new(Arc::clone(app.service()));
        maintenance.spawn(Arc::new(leases).run());
        let register = RedisRegister::new(self.shared.store(), self.membership.fleet());
        let register: Arc<dyn Register> = Arc::new(register);
        let node: Arc<dyn LocalNode> = Arc::<EnvoyService<SystemClock>>::clone(app.envoy());
        let (stop, stop_signal): (ShutdownTrigger, ShutdownSignal) = ShutdownTrigger::new();
        let mut membership = JoinSet::new();
        membership.spawn(Arc::clone(&self.membership).run(register, node, stop_signal.wait()));
        self.membership.wait_until_synced().await;
        FleetTasks {
            fleet: Arc::clone(self.shared.fleet()),
            app: Arc::clone(app),
            maintenance,
            membership,
            stop,
        }
    }
}

impl FleetTasks {
    /// Leaves the fleet after the last request: returns leases, reports counts, and removes this node from the member list.
    pub(super) async fn leave(mut self) {
        self.maintenance.shutdown().await;
        let now = || self.app.engine().store().now();
        let _left = timeout(LEAVE_TIMEOUT, self.fleet.leave(now)).await.is_ok();
        self.stop.trigger();
        let _ended = timeout(LEAVE_TIMEOUT, self.membership.join_next())
            .await
            .is_ok();
    }
}
