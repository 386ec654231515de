//! What the operating system tells a server: to stop, or to read its files again.
//!
//! Must not know: what either means for connections.

use std::io;

use std::sync::Arc;

use tollgate_server::listen::Tls;
use tollgate_store::{Clock as _, SystemClock};

use super::FileReloader;

/// Completes when the process is told to stop: Ctrl-C, or the signal that service managers send.
#[cfg(unix)]
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
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
pub(super) fn stop_signal() -> io::Result<impl Future<Output = ()>> {
    Ok(async {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "cannot listen for Ctrl-C; end the process to stop it");
            std::future::pending::<()>().await;
        }
    })
}

/// Whenever the process is sent SIGHUP, reads the policy again, changed or not, and looks at the files of TLS. Never
/// completes.
#[cfg(unix)]
pub(super) fn reload_signal(
    reloader: Option<FileReloader>,
    tls: Option<Arc<Tls>>,
) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            if reloader.is_none() && tls.is_none() {
                tracing::info!("there is no --config to read again");
            }
            let (reloader, tls) = (reloader.clone(), tls.clone());
            // A large file takes a while to read and compile, and nobody's answer should wait for it.
            let done = tokio::task::spawn_blocking(move || {
                // What came of it is in the log.
                reloader.map(|reloader| reloader.reload_now());
                tls.map(|tls| tls.look(SystemClock::new().now()));
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "reading files again failed; what was in force stays");
            }
        }
        std::future::pending::<()>().await;
    })
}

#[cfg(not(unix))]
pub(super) fn reload_signal(
    _reloader: Option<FileReloader>,
    _tls: Option<Arc<Tls>>,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
