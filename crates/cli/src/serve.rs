//! `tollgate serve`: a policy, listeners and the signals to reload and to stop, put together.
//!
//! Must not know: HTTP, the protocol of Redis, what policies say.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_engine::Engine;
use tollgate_engine::reload::{Reloader, Timing, Watch};
use tollgate_policy::source::Problems;
use tollgate_server::resp::{self, Resp};
use tollgate_server::{App, InvalidApp, Networks, demo_policy, run};
use tollgate_store::{Memory, SystemClock};

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// The policy file: YAML, TOML or JSON by its ending; without one a demonstration policy. Changes are put in force at once if they are right; SIGHUP reads it again
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
    /// Address and port to listen on for Redis clients, or `off`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380", value_parser = place, env = "TOLLGATE_LISTEN_RESP")]
    listen_resp: Place,
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
    trusted_proxies: Option<Networks>,
}

/// Where to listen, if at all.
#[derive(Clone, Copy, Debug)]
enum Place {
    Off,
    At(SocketAddr),
}

fn place(text: &str) -> Result<Place, String> {
    if text == "off" {
        return Ok(Place::Off);
    }
    let address = text.parse();
    address
        .map(Place::At)
        .map_err(|error| format!("{error}: it must be an address with a port, or `off`"))
}

/// Serves until the process is told to stop.
pub(crate) fn serve(options: &Options) -> Result<(), Box<dyn Error>> {
    // Logs go to stderr; stdout is for what was asked for.
    tracing_subscriber::fmt()
        .with_writer(io::stderr)
        .with_target(false)
        .init();
    let app = open(options)?;
    let app = match &options.trusted_proxies {
        Some(trusted) => app.trusting(trusted.clone()),
        None => app,
    };
    let app = Arc::new(app);
    // Until the end of this function the file is looked at whenever it changes.
    let _watch = app.reloader().map(follow).transpose()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let resp = Resp::new(Memory::for_keys(options.keys)?)?;
    let checker: Arc<dyn resp::Checker> = Arc::<Engine<Memory<SystemClock>>>::clone(app.engine());
    let resp = Arc::new(resp.with_checker(checker));
    runtime.block_on(async {
        // Before the address is announced: whoever reads it may send a signal at once.
        let stop = stop_signal()?;
        let reload = reload_signal(app.reloader().cloned())?;
        let listener = listen(options.listen, "--listen").await?;
        let for_redis = match options.listen_resp {
            Place::Off => None,
            Place::At(address) => Some(listen(address, "--listen-resp").await?),
        };
        let redis_address = for_redis
            .as_ref()
            .map(TcpListener::local_addr)
            .transpose()?;
        announce(&app, listener.local_addr()?, redis_address);
        let (stopping, stopped) = watch::channel(false);
        let until_stopped = || {
            let mut stopped = stopped.clone();
            async move {
                // An error would mean that nobody can say it any more, which is the end too.
                let _stopped = stopped.wait_for(|stop| *stop).await.is_ok();
            }
        };
        let ((), ended, resp_ended) = tokio::join!(
            async {
                tokio::select! {
                    () = stop => {}
                    () = reload => {}
                }
                tracing::info!("stopping: no new connections, open ones may finish");
                stopping.send_replace(true);
            },
            run(listener, Arc::clone(&app), until_stopped()),
            async {
                match for_redis {
                    Some(listener) => {
                        resp::run(listener, Arc::clone(&resp), until_stopped())
                            .await
                            .cut
                    }
                    None => 0,
                }
            },
        );
        tell_the_end(&app, &resp, ended.cut.saturating_add(resp_ended));
        Ok(())
    })
}

/// What came of it all, in one line.
fn tell_the_end(app: &App<SystemClock>, resp: &Resp<SystemClock>, cut: usize) {
    let (counters, of_resp) = (app.counters(), resp.counters());
    tracing::info!(
        cut,
        forgiven = app.forgiven().saturating_add(resp.forgiven()),
        tickets_given_up = app.tickets_given_up(),
        refused_connections = counters
            .refused_connections()
            .saturating_add(of_resp.refused_connections()),
        accept_errors = counters
            .accept_errors()
            .saturating_add(of_resp.accept_errors()),
        panics = counters.panics().saturating_add(of_resp.panics()),
        "stopped"
    );
}

/// An app with the policy in the file, or with the one that is built in.
fn open(options: &Options) -> Result<App<SystemClock>, Box<dyn Error>> {
    let clock = SystemClock::new();
    let app = match &options.config {
        Some(path) => App::following(path, options.keys, clock),
        None => App::new(&demo_policy()?, options.keys, clock),
    };
    app.map_err(|error| match error {
        InvalidApp::File(problems) => BadPolicy(problems).into(),
        other => other.into(),
    })
}

type FileReloader = Arc<Reloader<Memory<SystemClock>>>;

fn follow(reloader: &FileReloader) -> io::Result<Watch> {
    // What came of it is in the log.
    Watch::start(Arc::clone(reloader), Timing::default(), |_looked| {})
}

async fn listen(address: SocketAddr, option: &'static str) -> Result<TcpListener, CannotListen> {
    let listener = TcpListener::bind(address).await;
    listener.map_err(|error| CannotListen {
        address,
        option,
        error,
    })
}

fn announce(app: &App<SystemClock>, address: SocketAddr, resp: Option<SocketAddr>) {
    let also = resp.map(|resp| format!("redis-cli {} CL.THROTTLE user1 15 30 60 1", reach(resp)));
    let text = app.introduction(address, also.as_slice());
    let redis = resp.map_or_else(String::new, |resp| format!("listening on redis://{resp}\n"));
    let mut stdout = io::stdout().lock();
    let written = writeln!(stdout, "{redis}listening on http://{address}\n\n{text}");
    if let Err(error) = written.and_then(|()| stdout.flush()) {
        // Nobody reads it; the server is no worse for that.
        tracing::warn!(%error, "could not write to stdout");
    }
}

/// How redis-cli is told where to go, which finds its own machine by itself.
fn reach(address: SocketAddr) -> String {
    let (host, port) = (address.ip(), address.port());
    if host == IpAddr::V4(Ipv4Addr::LOCALHOST) {
        format!("-p {port}")
    } else {
        format!("-h {host} -p {port}")
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

/// Reads the policy again whenever the process is sent SIGHUP, changed or not. Never completes.
#[cfg(unix)]
fn reload_signal(reloader: Option<FileReloader>) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            let Some(reloader) = reloader.clone() else {
                tracing::info!("there is no --config to read again");
                continue;
            };
            // A large file takes a while to read and compile, and nobody's answer should wait for it.
            let done = tokio::task::spawn_blocking(move || reloader.reload_now()).await;
            if let Err(error) = done {
                tracing::error!(%error, "reading the policy again failed; the one in force stays");
            }
        }
        std::future::pending::<()>().await;
    })
}

#[cfg(not(unix))]
fn reload_signal(_reloader: Option<FileReloader>) -> io::Result<impl Future<Output = ()>> {
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
struct CannotListen {
    address: SocketAddr,
    option: &'static str,
    error: io::Error,
}

impl fmt::Display for CannotListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            address,
            option,
            error,
        } = self;
        match error.kind() {
            io::ErrorKind::AddrInUse => write!(
                f,
                "cannot listen on {address}: another program does; choose another port with {option}"
            ),
            _ => write!(f, "cannot listen on {address}: {error}"),
        }
    }
}

impl Error for CannotListen {}
