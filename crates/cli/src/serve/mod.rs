//! `tollgate serve`: a policy, listeners and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, the protocol of Redis, what policies say.

mod announce;
mod failures;
mod logs;
mod settings;
mod signals;
mod tls;
mod tokens;

use std::error::Error;
use std::io;
use std::sync::Arc;

use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tollgate_engine::reload::{Reloader, Timing, Watch};
use tollgate_server::admin::Admin;
use tollgate_server::listen::{Bounds, Ended, Listener, Place, Stop, Stopping};
use tollgate_server::resp::{self, Resp, RespLimits};
use tollgate_server::{App, InvalidApp, Limits, demo_policy};
use tollgate_store::{Memory, SystemClock};

use announce::{Places, announce, tell_the_end};
use failures::{BadPolicy, CannotListen};
pub(crate) use settings::Options;
use settings::Secured;
use signals::{reload_signal, stop_signal};
use tls::Securing;

/// Connections of operators and of whoever reads metrics.
const MOST_OPERATORS: usize = 64;

type FileReloader = Arc<Reloader<Memory<SystemClock>>>;

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    logs::start(&options.logs);
    let app = Arc::new(open(options)?);
    let securing = Securing::open(&options.tls)?;
    // Until the end of this function the file is looked at whenever it changes.
    let _watch = app.reloader().map(follow).transpose()?;
    let resp = Resp::new(Memory::for_keys(options.keys)?)?;
    let checker: Arc<dyn resp::Checker> = Arc::<App<SystemClock>>::clone(&app);
    let resp = resp.with_checker(checker);
    let resp = Arc::new(resp.with_metrics(Arc::clone(app.metrics())));
    let (stopped, stopping) = Stop::new();
    let admin = Admin::new(
        Arc::clone(&app),
        &options.listen_admin,
        options.tokens.read()?,
    )?;
    let admin = admin.with_resp(Arc::clone(&resp)).until(stopping.clone());
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    // Operators have a thread of their own: they are answered when all others are busy, and what takes a while, such as
    // reading a large policy, holds up no decision.
    let aside = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .thread_name("admin")
        .enable_all()
        .build()?;
    let served = Served {
        app,
        resp,
        admin: Arc::new(admin),
    };
    let serving = run(
        options,
        &securing,
        served,
        aside.handle(),
        (stopped, stopping),
    );
    runtime.block_on(serving)
}

/// Everything that is served.
struct Served {
    app: Arc<App<SystemClock>>,
    resp: Arc<Resp<SystemClock>>,
    admin: Arc<Admin<SystemClock>>,
}

/// Listens everywhere, or nowhere if one place cannot be listened on; then serves.
async fn run(
    options: &Options,
    securing: &Securing,
    served: Served,
    aside: &Handle,
    (stopped, stopping): (Stop, Stopping),
) -> Result<(), Box<dyn Error>> {
    let Served { app, resp, admin } = served;
    // Before anything is announced: whoever reads it may send a signal at once.
    let stop = stop_signal()?;
    let reload = reload_signal(app.reloader().cloned(), securing.tls().cloned())?;
    let api = listen(&options.listen, "--listen").await?;
    let api = api.map(|listener| securing.secure(listener, Secured::Api));
    let redis = listen(&options.listen_resp, "--listen-resp").await?;
    let redis = redis.map(|listener| securing.secure(listener, Secured::Resp));
    let place = options.listen_admin.clone();
    let operators = aside.spawn(async move { listen(&place, "--listen-admin").await });
    let operators = operators.await??;
    let operators = operators.map(|listener| securing.secure(listener, Secured::Admin));
    let places = Places {
        admin: operators.as_ref().map(Listener::reached).transpose()?,
        api: api.as_ref().map(Listener::reached).transpose()?,
        resp: redis.as_ref().map(Listener::reached).transpose()?,
    };
    let mut bounds = Bounds::default();
    bounds.connections = options.max_connections;
    let mut listeners: JoinSet<Ended> = JoinSet::new();
    if let Some(listener) = api {
        let mut limits = Limits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&app).run(listener, limits, stopping.wait()));
    }
    if let Some(listener) = redis {
        let mut limits = RespLimits::default();
        limits.bounds = bounds;
        listeners.spawn(Arc::clone(&resp).run(listener, limits, stopping.wait()));
    }
    let (over, until_over) = Stop::new();
    let operators = operators.map(|listener| {
        let mut limits = Limits::default();
        limits.bounds.connections = MOST_OPERATORS;
        aside.spawn(admin.run(listener, limits, until_over.wait()))
    });
    announce(&app, &places);
    tokio::select! {
        () = stop => {}
        () = reload => {}
    }
    stopped.say();
    tracing::info!("stopping: no new connections, open ones may finish");
    let mut cut = 0_usize;
    while let Some(ended) = listeners.join_next().await {
        cut = cut.saturating_add(ended?.cut);
    }
    // Last, so that it can be asked until then whether the server is ready, and says no.
    over.say();
    if let Some(ended) = operators {
        cut = cut.saturating_add(ended.await?.cut);
    }
    tell_the_end(&app, &resp, cut);
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
            InvalidApp::File(problems) => BadPolicy(problems).into(),
            other => other.into(),
        }
    })?;
    let app = app
        .speaking(options.words)
        .spreading(options.retry_jitter.unwrap_or_default())
        .logging(options.logs.log_denials);
    Ok(match &options.trusted_proxies {
        Some(trusted) => app.trusting(trusted.clone()),
        None => app,
    })
}

fn follow(reloader: &FileReloader) -> io::Result<Watch> {
    // What came of it is in the log.
    Watch::start(Arc::clone(reloader), Timing::default(), |_looked| {})
}

async fn listen(place: &Place, option: &'static str) -> Result<Option<Listener>, CannotListen> {
    Listener::bind(place).await.map_err(|error| CannotListen {
        place: place.clone(),
        option,
        error,
    })
}
