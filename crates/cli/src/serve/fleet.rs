//! The store that several nodes share: reached if it was named, looked after, and the place where nodes see each other.
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

/// How long saying goodbye may take: other nodes find out anyway.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// This process as one of a fleet.
#[derive(Debug)]
pub(super) struct FleetHandle {
    pub(super) shared: FleetConnection,
    pub(super) membership: Arc<Membership>,
}

/// The tasks that a fleet takes.
#[derive(Debug)]
pub(super) struct FleetTasks {
    fleet: Arc<Fleet>,
    app: Arc<HttpApi<SystemClock>>,
    /// Never end by themselves.
    maintenance: JoinSet<()>,
    membership: JoinSet<()>,
    stop: ShutdownTrigger,
}

/// Connects to the shared store, if one was named. It need not be there yet.
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
            "--redis is set and there is no fleet secret: each process would draw its own and count by \
             itself, N times the limit; set --fleet-secret-file or TOLLGATE_FLEET_SECRET, the same on all nodes"
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
            "--fleet-nodes is not set: while the shared store is away and no node has been seen, each admits half of \
             every limit"
        ),
    }
    if !shared.store().is_connected() {
        tracing::warn!("the shared store cannot be reached; starting without it");
    }
    let membership = Membership::new(secret, settings);
    Ok(Some(FleetHandle { shared, membership }))
}

impl FleetHandle {
    /// Begins to take part in the fleet, and waits until what operators have said elsewhere is known here, or the store did
    /// not say.
    pub(super) async fn join(&self, app: &Arc<HttpApi<SystemClock>>) -> FleetTasks {
        let engine = Arc::clone(app.engine());
        let mut tending = JoinSet::new();
        let tends = Arc::new(StoreMonitor::new(&self.shared));
        tending.spawn(tends.run(move || engine.store().now()));
        let maintenance = FleetMaintenance::new(Arc::clone(app.service()));
        tending.spawn(Arc::new(maintenance).run());
        let register = RedisRegister::new(self.shared.store(), self.membership.fleet());
        let register: Arc<dyn Register> = Arc::new(register);
        let node: Arc<dyn LocalNode> = Arc::<EnvoyService<SystemClock>>::clone(app.envoy());
        let (over, until_over): (ShutdownTrigger, ShutdownSignal) = ShutdownTrigger::new();
        let mut member = JoinSet::new();
        member.spawn(Arc::clone(&self.membership).run(register, node, until_over.wait()));
        self.membership.wait_until_synced().await;
        FleetTasks {
            fleet: Arc::clone(self.shared.fleet()),
            app: Arc::clone(app),
            maintenance: tending,
            membership: member,
            stop: over,
        }
    }
}

impl FleetTasks {
    /// Leaves the fleet, so that others need not find out by themselves: what was borrowed goes back, what was counted is
    /// told. After the last request.
    pub(super) async fn leave(mut self) {
        self.maintenance.shutdown().await;
        let now = || self.app.engine().store().now();
        let _back = timeout(LEAVE_TIMEOUT, self.fleet.leave(now)).await.is_ok();
        self.stop.trigger();
        let _said = timeout(LEAVE_TIMEOUT, self.membership.join_next())
            .await
            .is_ok();
    }
}
