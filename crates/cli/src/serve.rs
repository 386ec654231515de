//! `tollgate serve`: a policy, a listener and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, what policies say.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::net::TcpListener;
use tollgate_policy::load_path;
use tollgate_policy::model::Policy;
use tollgate_policy::source::Problems;
use tollgate_server::{App, Trusted, demo_policy, run};
use tollgate_store::SystemClock;

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The policy file: YAML, TOML or JSON by its ending; without one a demonstration policy. SIGHUP reads it again
    #[arg(long, value_name = "FILE", env = "TOLLGATE_CONFIG")]
    config: Option<PathBuf>,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(
        long,
        value_name = "ADDRESS",
        default_value = "127.0.0.1:8080",
        env = "TOLLGATE_LISTEN"
    )]
    listen: SocketAddr,
    /// Keys in use at the same time that memory is set aside for, about 50 bytes each
    #[arg(
        long,
        value_name = "N",
        default_value_t = 100_000,
        env = "TOLLGATE_KEYS"
    )]
    keys: usize,
    /// Networks of gateways whose word about clients is taken, separated by commas; without it only this machine
    #[arg(long, value_name = "NETWORKS", env = "TOLLGATE_TRUSTED_PROXIES")]
    trusted_proxies: Option<Trusted>,
}

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    let policy = load(options.config.as_deref())?;
    let app = App::new(&policy, options.keys, SystemClock::new())?;
    let app = match &options.trusted_proxies {
        Some(trusted) => app.trusting(trusted.clone()),
        None => app,
    };
    let app = Arc::new(app);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    runtime.block_on(async {
        // Before the address is announced: whoever reads it may send a signal at once.
        let stop = stop_signal()?;
        let reload = reload_signal(Arc::clone(&app), options.config.clone())?;
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|error| CannotListen(options.listen, error))?;
        announce(&app, listener.local_addr()?);
        let stopped = async {
            tokio::select! {
                () = stop => {}
                () = reload => {}
            }
            tracing::info!("stopping: no new connections, open ones may finish");
        };
        let ended = run(listener, Arc::clone(&app), stopped).await;
        let counters = app.counters();
        tracing::info!(
            cut = ended.cut,
            forgiven = app.forgiven(),
            tickets_given_up = app.tickets_given_up(),
            refused_connections = counters.refused_connections(),
            accept_errors = counters.accept_errors(),
            panics = counters.panics(),
            "stopped"
        );
        Ok(())
    })
}

/// The policy in a file, or the one that is built in.
fn load(path: Option<&Path>) -> Result<Policy, BadPolicy> {
    path.map_or_else(demo_policy, load_path).map_err(BadPolicy)
}

/// Reads the policy again and puts it in force if it is right; else the one before stays.
fn reload(app: &App<SystemClock>, path: &Path) {
    match load(Some(path)) {
        Err(problems) => {
            tracing::error!("the policy is not reloaded, the last good one stays: {problems}")
        }
        Ok(policy) => match app.replace(&policy) {
            Ok(generation) => tracing::info!(generation, "the policy was reloaded"),
            Err(error) => {
                tracing::error!("the policy is not reloaded, the last good one stays: {error}")
            }
        },
    }
}

fn announce(app: &App<SystemClock>, address: SocketAddr) {
    let text = app.introduction(address);
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "listening on http://{address}\n\n{text}");
    if let Err(error) = written.and_then(|()| stdout.flush()) {
        // Nobody reads it; the server is no worse for that.
        tracing::warn!(%error, "could not write to stdout");
    }
}

/// Completes when the process is told to stop: Ctrl-C, or the signal that service managers send.
#[cfg(unix)]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut interrupt = signal(SignalKind::interrupt())?;
    let mut terminate = signal(SignalKind::terminate())?;
    Ok(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    })
}

#[cfg(not(unix))]
fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "cannot listen for Ctrl-C; end the process to stop it");
            std::future::pending::<()>().await;
        }
    })
}

/// Reloads the policy whenever the process is sent SIGHUP. Never completes.
#[cfg(unix)]
fn reload_signal(
    app: Arc<App<SystemClock>>,
    path: Option<PathBuf>,
) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            let Some(path) = path.clone() else {
                tracing::info!("there is no --config to reload");
                continue;
            };
            let app = Arc::clone(&app);
            // A large file takes a while to read and compile, and nobody's answer should wait for it.
            let done = tokio::task::spawn_blocking(move || reload(&app, &path)).await;
            if let Err(error) = done {
                tracing::error!(%error, "reloading the policy failed, the last good one stays");
            }
        }
        std::future::pending().await
    })
}

#[cfg(not(unix))]
fn reload_signal(
    _app: Arc<App<SystemClock>>,
    _path: Option<PathBuf>,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}

/// A policy that cannot be put in force.
#[derive(Debug)]
struct BadPolicy(Problems);

impl fmt::Display for BadPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(problems) = self;
        let count = problems.list.len().saturating_add(problems.more);
        let are = if count == 1 {
            "is 1 problem"
        } else {
            "are problems"
        };
        write!(f, "there {are} with the policy\n\n{problems}")
    }
}

impl Error for BadPolicy {}

/// The address cannot be listened on.
#[derive(Debug)]
struct CannotListen(SocketAddr, io::Error);

impl fmt::Display for CannotListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(address, error) = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: another program does; choose another port with --listen"
            ),
            _ => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl Error for CannotListen {}
