//! `tollgate serve`: a listener, a limit and a signal to stop, put together.
//!
//! Must not know: HTTP.

use std::error::Error;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::net::TcpListener;
use tollgate_core::{Rate, TokenBucket};
use tollgate_server::{App, run};
use tollgate_store::SystemClock;

/// The name of the one limit there is before there are policy files.
const LIMIT: &str = "demo";

#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:8080")]
    listen: SocketAddr,
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
    runtime.block_on(async {
        // Before the address is announced: whoever reads it may send the signal at once.
        let stop = stop_signal()?;
        let listener = TcpListener::bind(options.listen).await;
        let listener = listener.map_err(|error| CannotListen(options.listen, error))?;
        announce(&app, listener.local_addr()?);
        let ended = run(listener, Arc::clone(&app), async {
            stop.await;
            tracing::info!("stopping: no new connections, open ones may finish");
        })
        .await;
        let counters = app.counters();
        tracing::info!(
            cut = ended.cut,
            forgiven = app.forgiven(),
            refused_connections = counters.refused_connections(),
            accept_errors = counters.accept_errors(),
            panics = counters.panics(),
            "stopped"
        );
        Ok(())
    })
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
