//! `tollgate serve`: a policy, listeners and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, gRPC, the protocol of Redis, what policies say.

mod bound_listeners;
mod drain;
mod errors;
mod fleet;
mod log_writer;
mod logs;
mod open_file_limit;
mod service_manager;
mod settings;
mod signals;
mod startup_message;
mod tls;
mod tokens;

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tollgate_server::admin::AdminApi;
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::{DrainOutcome, ListenerLimits, ShutdownTrigger};
use tollgate_server::resp::{self, RespLimits, RespServer};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::reload::{FileWatcher, ReloadHandle, WatchTiming};
use tollgate_service::{InvalidService, RateLimitService, Secret, demo_policy};
use tollgate_store::{MemoryStore, SystemClock};

use bound_listeners::BoundListeners;
use drain::drain;
use errors::InvalidPolicy;
use service_manager::{READY, STOPPING, ServiceManager};
pub(crate) use settings::Options;
use signals::{StopSignals, reload_signal};
use startup_message::{log_shutdown_totals, print_startup_message};
use tls::TlsSetup;

/// Connections of operators and of whoever reads metrics.
const MAX_ADMIN_CONNECTIONS: usize = 64;

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    // Dropped last: what happens until the end is written.
    let (dropped_lines, _flush) = logs::start(&options.logs)?;
    let (left, leaving) = ShutdownTrigger::new();
    let (runtime, aside) = runtimes(options)?;
    let secret = options.secrets.fleet_secret()?;
    let joined = fleet::connect(options, secret, &runtime)?;
    let app = Arc::new(build_api(options, secret)?.with_drain_signal(leaving.clone()));
    app.metrics().expose_dropped_log_lines(dropped_lines);
    let securing = TlsSetup::open(&options.tls)?;
    // Until the end of this function the file is looked at whenever it changes.
    let _watch = app.envoy().reloader().map(watch_policy).transpose()?;
    let mut resp = RespServer::new(MemoryStore::for_keys(options.capacity.keys)?)?;
    if let Some(joined) = &joined {
        app.join(joined.shared.fleet());
        resp = resp.with_fleet(Arc::clone(joined.shared.fleet()));
    }
    if let Some(password) = options.secrets.resp_password()? {
        resp = resp.with_password(&password);
    }
    if !app.envoy().is_by_files() {
        let service: &Arc<RateLimitService<_>> = app.service();
        let checker: Arc<dyn resp::Checker> = Arc::<RateLimitService<_>>::clone(service);
        resp = resp.with_checker(checker);
    }
    let resp = Arc::new(resp.with_metrics(Arc::clone(app.metrics())));
    let mut admin = AdminApi::new(
        Arc::clone(&app),
        &options.listen_admin,
        options.tokens.read()?,
    )?;
    if let Some(joined) = &joined {
        admin = admin.with_fleet(Arc::clone(&joined.membership));
    }
    let grpc = GrpcServer::new(Arc::clone(app.envoy())).with_drain_signal(leaving.clone());
    let grpc = Arc::new(grpc);
    let admin = admin
        .with_resp(Arc::clone(&resp))
        .with_listener("grpc", Arc::clone(grpc.counters()))
        .with_tls(securing.tls().cloned())
        .with_drain_signal(leaving);
    let served = Transports {
        app,
        grpc,
        resp,
        admin: Arc::new(admin),
        fleet: joined,
    };
    let serving = run(options, &securing, served, aside.handle(), &left);
    runtime.block_on(serving)
}

/// The threads that answer, and one for operators: they are answered when all others are busy, and what takes a while, such
/// as reading a large policy, holds up no decision.
fn runtimes(options: &Options) -> io::Result<(Runtime, Runtime)> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = options.capacity.worker_threads {
        runtime.worker_threads(threads);
    }
    let runtime = runtime.enable_all().build()?;
    let aside = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("admin")
        .enable_all()
        .build()?;
    Ok((runtime, aside))
}

/// Everything that is served.
struct Transports {
    app: Arc<HttpApi<SystemClock>>,
    grpc: Arc<GrpcServer<SystemClock>>,
    resp: Arc<RespServer<SystemClock>>,
    admin: Arc<AdminApi<SystemClock>>,
    /// The fleet that it is one of, if it is.
    fleet: Option<fleet::FleetHandle>,
}

/// Listens everywhere, or nowhere if one place cannot be listened on; then serves.
async fn run(
    options: &Options,
    securing: &TlsSetup,
    served: Transports,
    aside: &Handle,
    left: &ShutdownTrigger,
) -> Result<(), Box<dyn Error>> {
    let (app, grpc, resp) = (served.app, served.grpc, served.resp);
    // Before anything is announced: whoever reads it may send a signal at once.
    let mut stop = StopSignals::listen()?;
    let manager = ServiceManager::from_environment();
    let reload = reload_signal(
        app.envoy().reloader(),
        securing.tls().cloned(),
        manager.clone(),
    )?;
    let bound = BoundListeners::bind_all(options, securing, aside).await?;
    let places = bound.addresses()?;
    let mut bounds = ListenerLimits::default();
    bounds.max_connections = options.capacity.max_connections;
    bounds.drain_timeout = options.drain.drain_timeout;
    // Before anybody is served: whom an operator has blocked elsewhere is not let through here.
    let together = match &served.fleet {
        Some(joined) => Some(joined.join(&app).await),
        None => None,
    };
    let (stopped, stopping) = ShutdownTrigger::new();
    let mut listeners: JoinSet<DrainOutcome> = JoinSet::new();
    if let Some(listener) = bound.api {
        let mut limits = HttpLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = bound.grpc {
        let mut limits = GrpcLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&grpc).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = bound.resp {
        let mut limits = RespLimits::default();
        limits.listener = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
    }
    let (over, until_over) = ShutdownTrigger::new();
    let operators = bound.admin.map(|listener| {
        let mut limits = HttpLimits::default();
        limits.listener.max_connections = MAX_ADMIN_CONNECTIONS;
        aside.spawn(served.admin.run(listener, limits, until_over.wait()))
    });
    open_file_limit::raise_to_hard_limit(expected_connections(options));
    let mut measuring = JoinSet::new();
    measuring.spawn(Arc::clone(app.saturation()).measure_runtime_delay());
    measuring.spawn(Arc::<RateLimitService<_>>::clone(app.service()).run_watchdog());
    print_startup_message(&app, &places);
    manager.notify(READY);
    tokio::select! {
        () = stop.next() => {}
        () = reload => {}
    }
    left.trigger();
    manager.notify(STOPPING);
    tracing::info!("stopping: open connections may finish");
    let again = async || stop.next().await;
    let mut cut = drain(listeners, &stopped, options.drain.drain_delay, again).await?;
    // Last, so that it can be asked until then whether the server is ready, and says no.
    over.trigger();
    if let Some(ended) = operators {
        cut = cut.saturating_add(ended.await?.aborted);
    }
    if let Some(together) = together {
        together.leave().await;
    }
    let counters = [app.counters(), grpc.counters(), resp.counters()];
    log_shutdown_totals(&app, &resp, counters, cut);
    Ok(())
}

/// An app with the policy in the file, or with the one that is built in.
fn build_api(
    options: &Options,
    secret: Option<Secret>,
) -> Result<HttpApi<SystemClock>, Box<dyn Error>> {
    let (clock, keys) = (SystemClock::new(), options.capacity.keys);
    let secret = secret.unwrap_or_else(Secret::random);
    let app = match &options.config {
        Some(path) => HttpApi::from_file(path, keys, clock, secret),
        None => HttpApi::new_with_secret(&demo_policy()?, keys, clock, secret),
    };
    let app = app.map_err(|error| -> Box<dyn Error> {
        match error {
            InvalidService::Files(problems) => InvalidPolicy(problems).into(),
            other => other.into(),
        }
    })?;
    let app = app
        .with_dialects(options.words)
        .with_max_waiting(options.capacity.max_waiting)
        .with_retry_jitter(options.retry_jitter.unwrap_or_default())
        .with_denial_log(options.logs.log_denials);
    Ok(match &options.trusted_proxies {
        Some(trusted) => app.with_trusted_proxies(trusted.clone()),
        None => app,
    })
}

/// Connections that one full listener and the operators have. That several are full at once is not provided for: whoever
/// would be one too many then waits, as the accept loop does.
fn expected_connections(options: &Options) -> u64 {
    let most = options.capacity.max_connections;
    most.saturating_add(MAX_ADMIN_CONNECTIONS) as u64
}

fn watch_policy(reload: Arc<dyn ReloadHandle>) -> io::Result<FileWatcher> {
    // What came of it is in the log.
    FileWatcher::start(reload, WatchTiming::default(), |_looked| {})
}
