//! `tollgate serve`: wires the policy, the listeners, and the signals for reload and shutdown.
//!
//! Must not know: HTTP, gRPC, the protocol of Redis, what policies say.

mod access_log;
mod bound_listeners;
mod drain;
mod errors;
mod exposure;
mod fleet;
mod gateway;
mod log_writer;
mod logs;
mod open_file_limit;
mod service_manager;
mod settings;
mod signals;
mod startup_message;
mod state;
mod tls;
mod tokens;
mod variables;

use std::error::Error;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tollgate_server::admin::AdminApi;
use tollgate_server::gateway::Gateway;
use tollgate_server::grpc::{GrpcLimits, GrpcServer};
use tollgate_server::listen::{
    BufferBudget, DrainOutcome, ListenerLimits, ShutdownSignal, ShutdownTrigger,
};
use tollgate_server::resp::{self, RespLimits, RespServer};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::reload::{FileWatcher, WatchTiming};
use tollgate_service::state::{InitialState, ProcessState, StateFile};
use tollgate_service::{InvalidService, KeyFileWatcher, RateLimitService, Secret, demo_policy};
use tollgate_store::{MemoryStore, SystemClock};

use access_log::{OpenAccessLog, ReopenSignal};
use bound_listeners::BoundListeners;
use drain::drain;
use errors::InvalidPolicy;
use exposure::warn_about_exposure;
use service_manager::{READY, STOPPING, ServiceManager};
pub(crate) use settings::Options;
use signals::{StopSignals, reload_signal};
use startup_message::{announce_start, log_shutdown_totals};
use state::{StateSaver, StateSetup};
use tls::TlsSetup;
use variables::warn_about_variables;

/// How long the end of the process waits for blocking tasks.
const BLOCKING_TASK_TIMEOUT: Duration = Duration::from_millis(200);
/// Every second task comes from the runtime's global queue, where connections wait that do not fit into the queue of a worker.
/// With 1 those in a worker's own queue would wait for all others; tokio's own choice serves the global queue too seldom (ADR 0049).
const GLOBAL_QUEUE_INTERVAL: u32 = 2;

/// Serves until the process gets a stop signal.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    // Dropped last: what happens until the end is written.
    let (dropped_lines, _flush) = logs::start(&options.logs)?;
    warn_about_variables();
    options.check()?;
    let (draining, drain_signal) = ShutdownTrigger::new();
    let (runtime, admin_runtime) = runtimes(options)?;
    let secret = options.secrets.fleet_secret()?;
    let fleet = fleet::connect(options, secret, &runtime)?;
    let buffers = Arc::new(BufferBudget::new(options.capacity.max_buffered_bytes));
    let (app, throttle, state_file) = restore_api(options, secret, &drain_signal, &buffers)?;
    app.metrics().expose_dropped_log_lines(dropped_lines);
    let tls = TlsSetup::open(&options.tls)?;
    // Watches the policy file until this function returns.
    let _watch = watch_files(&app)?;
    let mut resp = RespServer::new(throttle)?.with_buffers(Arc::clone(&buffers));
    if let Some(fleet) = &fleet {
        app.join(fleet.shared.fleet());
        resp = resp.with_fleet(Arc::clone(fleet.shared.fleet()));
    }
    let resp_password = options.secrets.resp_password()?;
    warn_about_exposure(options, &tls, resp_password.as_deref());
    if let Some(password) = &resp_password {
        resp = resp.with_password(password);
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
    if let Some(fleet) = &fleet {
        admin = admin.with_fleet(Arc::clone(&fleet.membership));
    }
    // The log is dropped after the listeners have ended, so that the last requests are logged.
    let (gateway, access_log) = gateway::open(options, &app, &buffers)?;
    let grpc = GrpcServer::new(Arc::clone(app.envoy()))
        .with_buffers(buffers)
        .with_drain_signal(drain_signal.clone());
    let grpc = Arc::new(grpc);
    let admin = admin
        .with_resp(Arc::clone(&resp))
        .with_listener("grpc", Arc::clone(grpc.counters()))
        .with_gateway(gateway.clone())
        .with_tls(tls.tls().cloned())
        .with_drain_signal(drain_signal);
    let transports = Transports {
        app,
        grpc,
        resp,
        admin: Arc::new(admin),
        gateway,
        reopen_access_log: access_log.as_ref().map(OpenAccessLog::reopen_signal),
        fleet,
    };
    let saver = state_file.map(|file| {
        let (app, resp) = (Arc::clone(&transports.app), Arc::clone(&transports.resp));
        StateSaver::start(file, options.state.state_interval, app, resp)
    });
    let saver = saver.transpose()?;
    let serving = run(options, &tls, transports, admin_runtime.handle(), &draining);
    let served = runtime.block_on(serving);
    // Nothing is decided any more, so this is exact.
    if let Some(saver) = saver {
        saver.finish();
    }
    // Without a timeout the end would wait for every blocking task, and a file system may never answer one.
    runtime.shutdown_timeout(BLOCKING_TASK_TIMEOUT);
    admin_runtime.shutdown_timeout(BLOCKING_TASK_TIMEOUT);
    served
}

/// The runtime of the listeners, and one with a single thread for the admin listener. The admin listener answers when all
/// other threads are busy, and slow admin work, such as reading a large policy, delays no decision.
fn runtimes(options: &Options) -> io::Result<(Runtime, Runtime)> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    if let Some(threads) = options.capacity.worker_threads {
        runtime.worker_threads(threads);
    }
    runtime.global_queue_interval(GLOBAL_QUEUE_INTERVAL);
    let runtime = runtime.enable_all().build()?;
    let admin_runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("admin")
        .enable_all()
        .build()?;
    Ok((runtime, admin_runtime))
}

/// The servers of all transports.
struct Transports {
    app: Arc<HttpApi<SystemClock>>,
    grpc: Arc<GrpcServer<SystemClock>>,
    resp: Arc<RespServer<SystemClock>>,
    admin: Arc<AdminApi<SystemClock>>,
    /// The gateway, if there is an upstream.
    gateway: Option<Arc<Gateway<SystemClock>>>,
    /// Opens the access log again, if it is a file.
    reopen_access_log: Option<ReopenSignal>,
    /// The fleet, if `--redis` is set.
    fleet: Option<fleet::FleetHandle>,
}

/// Binds all listeners, or none if one cannot be bound; then serves.
async fn run(
    options: &Options,
    tls: &TlsSetup,
    transports: Transports,
    admin_runtime: &Handle,
    draining: &ShutdownTrigger,
) -> Result<(), Box<dyn Error>> {
    let (app, grpc, resp) = (transports.app, transports.grpc, transports.resp);
    // Before the startup message: a reader of the message may send a signal at once.
    let mut stop = StopSignals::listen()?;
    let manager = ServiceManager::from_environment();
    let (policy, tls_files) = (app.envoy().reloader(), tls.tls().cloned());
    let access_log = transports.reopen_access_log;
    let reload = reload_signal(policy, tls_files, access_log, manager.clone())?;
    let has_gateway = transports.gateway.is_some();
    let bound = BoundListeners::bind_all(options, tls, has_gateway, admin_runtime).await?;
    let addresses = bound.addresses()?;
    let bounds = listener_limits(options);
    // Before the first request: blocks and overrides set on other nodes must hold here too.
    let fleet_tasks = match &transports.fleet {
        Some(fleet) => Some(fleet.join(&app).await),
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
    let gateway = transports.gateway;
    gateway::start(gateway, bound.gateway, bounds, &stopping, &mut listeners);
    let (admin_stop, admin_stop_signal) = ShutdownTrigger::new();
    let operators = bound.admin.map(|listener| {
        let stop = admin_stop_signal.wait();
        admin_runtime.spawn(
            transports
                .admin
                .run(listener, HttpLimits::for_admin(), stop),
        )
    });
    open_file_limit::raise_to_hard_limit(expected_connections(options));
    let _measuring = measure_process(&app);
    announce_start(&app, options.policy_path(), &addresses);
    manager.notify(READY);
    tokio::select! {
        () = stop.next() => {}
        () = reload => {}
    }
    draining.trigger();
    manager.notify(STOPPING);
    let again = async || stop.next().await;
    let mut cut = drain(listeners, &stopped, options.drain.drain_delay, again).await?;
    // The admin listener stops last, so that /readyz answers 503 until then.
    admin_stop.trigger();
    if let Some(ended) = operators {
        cut = cut.saturating_add(ended.await?.aborted);
    }
    if let Some(fleet_tasks) = fleet_tasks {
        fleet_tasks.leave().await;
    }
    let counters = [app.counters(), grpc.counters(), resp.counters()];
    log_shutdown_totals(&app, &resp, counters, cut);
    Ok(())
}

/// Measures the runtime and the process until the set is dropped.
fn measure_process(app: &HttpApi<SystemClock>) -> JoinSet<()> {
    let mut measuring = JoinSet::new();
    measuring.spawn(Arc::clone(app.saturation()).measure_runtime_delay());
    measuring.spawn(Arc::clone(app.service()).measure_process_cpu());
    measuring.spawn(Arc::clone(app.service()).log_memory_pressure());
    measuring.spawn(Arc::<RateLimitService<_>>::clone(app.service()).run_watchdog());
    measuring
}

/// The bounds of each listener but the admin listener.
fn listener_limits(options: &Options) -> ListenerLimits {
    let mut bounds = ListenerLimits::default();
    bounds.max_connections = options.capacity.max_connections;
    if let Some(most) = options.capacity.max_connections_per_address {
        bounds.max_connections_per_address = most;
    }
    bounds.drain_timeout = options.drain.drain_timeout;
    bounds
}

/// The HTTP API and the store of the throttle commands, with the state of the process before, and the state file.
fn restore_api(
    options: &Options,
    secret: Option<Secret>,
    drain_signal: &ShutdownSignal,
    buffers: &Arc<BufferBudget>,
) -> Result<RestoredApi, Box<dyn Error>> {
    let StateSetup {
        file,
        initial,
        throttle,
        process,
    } = StateSetup::load(options)?;
    let secret = secret.or(process.as_ref().map(ProcessState::secret));
    let app = build_api(options, initial, secret)?
        .with_buffers(Arc::clone(buffers))
        .with_drain_signal(drain_signal.clone());
    if let Some(process) = process {
        app.envoy().restore(process);
    }
    if let Some(file) = &file {
        app.metrics().expose_state_file(Arc::clone(file.status()));
    }
    Ok((Arc::new(app), throttle, file))
}

type RestoredApi = (
    Arc<HttpApi<SystemClock>>,
    MemoryStore<SystemClock>,
    Option<Arc<StateFile>>,
);

/// The HTTP API with the policy of `--config`, or with the demonstration policy.
fn build_api(
    options: &Options,
    initial: InitialState<SystemClock>,
    secret: Option<Secret>,
) -> Result<HttpApi<SystemClock>, Box<dyn Error>> {
    let secret = secret.unwrap_or_else(Secret::random);
    let app = match options.policy_path() {
        Some(path) => {
            let envoy = options.envoy.to_envoy_options();
            HttpApi::from_file_with_state(path, initial, secret, envoy)
        }
        None => HttpApi::with_state(&demo_policy()?, initial, secret),
    };
    let app = app.map_err(|error| -> Box<dyn Error> {
        match error {
            InvalidService::Files(problems) => InvalidPolicy(problems).into(),
            other => other.into(),
        }
    })?;
    if let Some(flag) = options.envoy.first_given()
        && !app.envoy().is_by_files()
    {
        return Err(format!(
            "{flag}: it is only for files of envoyproxy/ratelimit, and --config names none"
        )
        .into());
    }
    let app = app
        .with_body_form(options.body)
        .with_dialects(options.headers)
        .with_max_waiting(options.capacity.max_waiting)
        .with_retry_jitter(options.retry_jitter.unwrap_or_default())
        .with_denial_log(options.logs.log_denials);
    Ok(match &options.trusted_proxies {
        Some(trusted) => app.with_trusted_proxies(trusted.clone()),
        None => app,
    })
}

/// The open connections of one full listener and of the admin listener. If several listeners are full at once, the process
/// may run out of files; then the accept loop waits.
fn expected_connections(options: &Options) -> u64 {
    let most = options.capacity.max_connections;
    most.saturating_add(HttpLimits::for_admin().listener.max_connections) as u64
}

/// Watches the policy file, if there is one, and the file with the keys of tokens that the current policy names.
fn watch_files(app: &HttpApi<SystemClock>) -> io::Result<Option<FileWatcher>> {
    let timing = WatchTiming::default();
    let keys = KeyFileWatcher::new(Arc::clone(app.service()), timing);
    keys.follow_policy()?;
    let reloader = app.envoy().reloader();
    // The reloader logs its result. Without a policy file nothing names another file of keys.
    let watch = reloader.map(|reload| {
        FileWatcher::start(reload, timing, move |_result| keys.follow_policy_or_log())
    });
    watch.transpose()
}
