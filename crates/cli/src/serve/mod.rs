//! `tollgate serve`: a policy, listeners and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, gRPC, the protocol of Redis, what policies say.

mod announce;
mod failures;
mod settings;
mod signals;

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio::task::JoinSet;
use tollgate_engine::Engine;
use tollgate_engine::reload::{Reload, Timing, Watch};
use tollgate_server::grpc::{Grpc, GrpcLimits};
use tollgate_server::listen::{Bounds, Ended, Listener, Place, Stop};
use tollgate_server::resp::{self, Resp, RespLimits};
use tollgate_server::{App, InvalidApp, Limits, demo_policy};
use tollgate_store::{Memory, SystemClock};

use announce::{Places, announce, tell_the_end};
use failures::{BadPolicy, CannotListen};
pub(crate) use settings::Options;
use signals::{reload_signal, stop_signal};

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    // Logs go to stderr; stdout is for what was asked for.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .init();
    let app = Arc::new(open(options)?);
    // Until the end of this function the file is looked at whenever it changes.
    let _watch = app.reload().map(follow).transpose()?;
    let mut resp = Resp::new(Memory::for_keys(options.keys)?)?;
    if !app.is_by_envoys_files() {
        let checker: Arc<dyn resp::Checker> =
            Arc::<Engine<Memory<SystemClock>>>::clone(app.engine());
        resp = resp.with_checker(checker);
    }
    let resp = Arc::new(resp);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(run(options, app, resp))
}

/// Listens everywhere, or nowhere if one place cannot be listened on; then serves.
async fn run(
    options: &Options,
    app: Arc<App<SystemClock>>,
    resp: Arc<Resp<SystemClock>>,
) -> Result<(), Box<dyn Error>> {
    // Before anything is announced: whoever reads it may send a signal at once.
    let stop = stop_signal()?;
    let reload = reload_signal(app.reload())?;
    let api = listen(&options.listen, "--listen").await?;
    let envoy = listen(&options.listen_grpc, "--listen-grpc").await?;
    let redis = listen(&options.listen_resp, "--listen-resp").await?;
    let places = Places {
        api: api.as_ref().map(Listener::reached).transpose()?,
        grpc: envoy.as_ref().map(Listener::reached).transpose()?,
        resp: redis.as_ref().map(Listener::reached).transpose()?,
    };
    let mut bounds = Bounds::default();
    bounds.connections = options.max_connections;
    let (stopped, stopping) = Stop::new();
    let mut listeners: JoinSet<Ended> = JoinSet::new();
    if let Some(listener) = api {
        let mut limits = Limits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));
    }
    let grpc = Arc::new(Grpc::new(Arc::clone(&app)));
    if let Some(listener) = envoy {
        let mut limits = GrpcLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&grpc).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = redis {
        let mut limits = RespLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
    }
    announce(&app, &places);
    tokio::select! {
        () = stop => {}
        () = reload => {}
    }
    tracing::info!("stopping: no new connections, open ones may finish");
    stopped.say();
    let mut cut = 0_usize;
    while let Some(ended) = listeners.join_next().await {
        cut = cut.saturating_add(ended?.cut);
    }
    let counters = [app.counters(), grpc.counters(), resp.counters()];
    tell_the_end(&app, &resp, counters, cut);
    Ok(())
}

/// An app with the policy in the file, or with the one that is built in.
fn open(options: &Options) -> Result<App<SystemClock>, Box<dyn Error>> {
    let clock = SystemClock::new();
    let app = match &options.config {
        Some(path) => App::following(path, options.keys, clock),
        None => App::new(&demo_policy()?, options.keys, clock),
    };
    let app = app.map_err(|error| -> Box<dyn Error> {
        match error {
            InvalidApp::File(problems) => BadPolicy(vec![problems]).into(),
            InvalidApp::Files(refused) => BadPolicy(refused.0).into(),
            other => other.into(),
        }
    })?;
    let app = app
        .speaking(options.words)
        .spreading(options.retry_jitter.unwrap_or_default());
    Ok(match &options.trusted_proxies {
        Some(trusted) => app.trusting(trusted.clone()),
        None => app,
    })
}

fn follow(reload: Arc<dyn Reload>) -> io::Result<Watch> {
    // What came of it is in the log.
    Watch::start(reload, Timing::default(), |_looked| {})
}

async fn listen(place: &Place, option: &'static str) -> Result<Option<Listener>, CannotListen> {
    Listener::bind(place).await.map_err(|error| CannotListen {
        place: place.clone(),
        option,
        error,
    })
}
