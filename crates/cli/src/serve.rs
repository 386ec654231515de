//! `tollgate serve`: listeners, a limit and a signal to stop, put together.
//!
//! Must not know: HTTP, the protocol of Redis.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tollgate_core::{Rate, TokenBucket};
use tollgate_server::resp::{self, Resp};
use tollgate_server::{App, run};
use tollgate_store::{Memory, SystemClock};

/// The name of the one limit there is before there are policy files.
const LIMIT: &str = "demo";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
    /// Address and port to listen on for Redis clients, or `off`
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:6380", value_parser = place)]
    listen_resp: Place,
    /// How fast each key's bucket refills: N/s, N/min, N/h or N/d
    #[arg(long, default_value = "10/s", value_parser = crate::rate::parse)]
    rate: Rate,
    /// The most that each key may spend at once
    #[arg(long, value_name = "N", default_value_t = 20)]
    burst: u64,
    /// Keys in use at the same time that memory is set aside for, about 50 bytes each
    #[arg(long, value_name = "N", default_value_t = 100_000)]
    keys: usize,
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
    let quota = TokenBucket::at(options.rate).burst(options.burst).build();
    let quota =
        quota.map_err(|error| format!("--rate and --burst do not make a limit: {error}"))?;
    let app = Arc::new(App::new(LIMIT, quota, options.keys, SystemClock::new())?);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()?;
    let resp = Resp::new(Memory::for_keys(options.keys)?)?;
    let checker: Arc<dyn resp::Checker> = Arc::<App<SystemClock>>::clone(&app);
    let resp = Arc::new(resp.with_checker(checker));
    runtime.block_on(async {
        // Before the address is announced: whoever reads it may send the signal at once.
        let stop = stop_signal()?;
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
                stop.await;
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
        let (counters, of_resp) = (app.counters(), resp.counters());
        tracing::info!(
            cut = ended.cut.saturating_add(resp_ended),
            forgiven = app.forgiven().saturating_add(resp.forgiven()),
            refused_connections = counters
                .refused_connections()
                .saturating_add(of_resp.refused_connections()),
            accept_errors = counters
                .accept_errors()
                .saturating_add(of_resp.accept_errors()),
            panics = counters.panics().saturating_add(of_resp.panics()),
            "stopped"
        );
        Ok(())
    })
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
    let text = app.introduction(address);
    let (also, try_also) = match resp {
        Some(resp) => (
            format!("listening on redis://{resp}\n"),
            format!("  redis-cli {} CL.THROTTLE user1 15 30 60 1\n", reach(resp)),
        ),
        None => (String::new(), String::new()),
    };
    let mut stdout = io::stdout().lock();
    let written = write!(
        stdout,
        "{also}listening on http://{address}\n\n{text}{try_also}\n"
    );
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
