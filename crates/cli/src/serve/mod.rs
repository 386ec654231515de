//! `tollgate serve`: a policy, listeners and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, gRPC, the protocol of Redis, what policies say.

mod announce;
mod bound;
mod drain;
mod failures;
mod fleet;
mod logs;
mod manager;
mod open_files;
mod settings;
mod signals;
mod tls;
mod tokens;

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio::runtime::{Handle, Runtime};
use tokio::task::JoinSet;
use tollgate_server::admin::Admin;
use tollgate_server::grpc::{Grpc, GrpcLimits};
use tollgate_server::listen::{Bounds, Ended, Stop};
use tollgate_server::resp::{self, Resp, RespLimits};
use tollgate_server::{HttpApi, HttpLimits};
use tollgate_service::reload::{Reload, Timing, Watch};
use tollgate_service::{InvalidService, RateLimitService, Secret, demo_policy};
use tollgate_store::{Memory, SystemClock};

use announce::{announce, tell_the_end};
use bound::Bound;
use drain::drain;
use failures::BadPolicy;
use manager::{Manager, READY, STOPPING};
pub(crate) use settings::Options;
use signals::{StopSignals, reload_signal};
use tls::Securing;

/// Connections of operators and of whoever reads metrics.
const MOST_OPERATORS: usize = 64;

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    logs::start(&options.logs);
    let (left, leaving) = Stop::new();
    let (runtime, aside) = runtimes(options)?;
    let secret = options.secrets.fleet_secret()?;
    let joined = fleet::open(options, secret, &runtime)?;
    let app = Arc::new(open(options, secret)?.until(leaving.clone()));
    let securing = Securing::open(&options.tls)?;
    // Until the end of this function the file is looked at whenever it changes.
    let _watch = app.envoy().reload().map(follow).transpose()?;
    let mut resp = Resp::new(Memory::for_keys(options.capacity.keys)?)?;
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
    let mut admin = Admin::new(
        Arc::clone(&app),
        &options.listen_admin,
        options.tokens.read()?,
    )?;
    if let Some(joined) = &joined {
        admin = admin.with_fleet(Arc::clone(&joined.membership));
    }
    let grpc = Grpc::new(Arc::clone(app.envoy())).until(leaving.clone());
    let grpc = Arc::new(grpc);
    let admin = admin
        .with_resp(Arc::clone(&resp))
        .with_listener("grpc", Arc::clone(grpc.counters()))
        .with_tls(securing.tls().cloned())
        .until(leaving);
    let served = Served {
        app,
        grpc,
        resp,
        admin: Arc::new(admin),
        joined,
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
struct Served {
    app: Arc<HttpApi<SystemClock>>,
    grpc: Arc<Grpc<SystemClock>>,
    resp: Arc<Resp<SystemClock>>,
    admin: Arc<Admin<SystemClock>>,
    /// The fleet that it is one of, if it is.
    joined: Option<fleet::Joined>,
}

/// Listens everywhere, or nowhere if one place cannot be listened on; then serves.
async fn run(
    options: &Options,
    securing: &Securing,
    served: Served,
    aside: &Handle,
    left: &Stop,
) -> Result<(), Box<dyn Error>> {
    let (app, grpc, resp) = (served.app, served.grpc, served.resp);
    // Before anything is announced: whoever reads it may send a signal at once.
    let mut stop = StopSignals::listen()?;
    let manager = Manager::from_environment();
    let reload = reload_signal(
        app.envoy().reload(),
        securing.tls().cloned(),
        manager.clone(),
    )?;
    let bound = Bound::everywhere(options, securing, aside).await?;
    let places = bound.places()?;
    let mut bounds = Bounds::default();
    bounds.connections = options.capacity.max_connections;
    bounds.drain = options.drain.drain_timeout;
    // Before anybody is served: whom an operator has blocked elsewhere is not let through here.
    let together = match &served.joined {
        Some(joined) => Some(joined.take_part(&app).await),
        None => None,
    };
    let (stopped, stopping) = Stop::new();
    let mut listeners: JoinSet<Ended> = JoinSet::new();
    if let Some(listener) = bound.api {
        let mut limits = HttpLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = bound.grpc {
        let mut limits = GrpcLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&grpc).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = bound.resp {
        let mut limits = RespLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
    }
    let (over, until_over) = Stop::new();
    let operators = bound.admin.map(|listener| {
        let mut limits = HttpLimits::default();
        limits.bounds.connections = MOST_OPERATORS;
        aside.spawn(served.admin.run(listener, limits, until_over.wait()))
    });
    open_files::allow(expected_connections(options));
    let mut measuring = JoinSet::new();
    measuring.spawn(Arc::clone(app.saturation()).measure());
    announce(&app, &places);
    manager.say(READY);
    tokio::select! {
        () = stop.next() => {}
        () = reload => {}
    }
    left.say();
    manager.say(STOPPING);
    tracing::info!("stopping: open connections may finish");
    let again = async || stop.next().await;
    let mut cut = drain(listeners, &stopped, options.drain.drain_delay, again).await?;
    // Last, so that it can be asked until then whether the server is ready, and says no.
    over.say();
    if let Some(ended) = operators {
        cut = cut.saturating_add(ended.await?.cut);
    }
    if let Some(together) = together {
        together.leave().await;
    }
    let counters = [app.counters(), grpc.counters(), resp.counters()];
    tell_the_end(&app, &resp, counters, cut);
    Ok(())
}

/// An app with the policy in the file, or with the one that is built in.
fn open(options: &Options, secret: Option<Secret>) -> Result<HttpApi<SystemClock>, Box<dyn Error>> {
    let (clock, keys) = (SystemClock::new(), options.capacity.keys);
    let secret = secret.unwrap_or_else(Secret::random);
    let app = match &options.config {
        Some(path) => HttpApi::following(path, keys, clock, secret),
        None => HttpApi::keyed(&demo_policy()?, keys, clock, secret),
    };
    let app = app.map_err(|error| -> Box<dyn Error> {
        match error {
            InvalidService::Files(problems) => BadPolicy(problems).into(),
            other => other.into(),
        }
    })?;
    let app = app
        .speaking(options.words)
        .holding_back(options.capacity.max_waiting)
        .spreading(options.retry_jitter.unwrap_or_default())
        .logging(options.logs.log_denials);
    Ok(match &options.trusted_proxies {
        Some(trusted) => app.trusting(trusted.clone()),
        None => app,
    })
}

/// Connections that one full listener and the operators have. That several are full at once is not provided for: whoever
/// would be one too many then waits, as the accept loop does.
fn expected_connections(options: &Options) -> u64 {
    let most = options.capacity.max_connections;
    most.saturating_add(MOST_OPERATORS) as u64
}

fn follow(reload: Arc<dyn Reload>) -> io::Result<Watch> {
    // What came of it is in the log.
    Watch::start(reload, Timing::default(), |_looked| {})
}
