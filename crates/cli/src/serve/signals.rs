//! What the operating system tells a server: to stop, or to read its files again.
//!
//! Must not know: what either means for connections.

use std::io;
use std::sync::Arc;

use tollgate_server::listen::ServerTls;
use tollgate_service::reload::ReloadHandle;
use tollgate_store::{Clock as _, SystemClock};

use super::service_manager::{READY, RELOADING, ServiceManager};

/// Hears when the process is told to stop: Ctrl-C, or the signal that service managers send.
#[cfg(unix)]
pub(super) struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignals {
    /// Listens from now on.
    pub(super) fn listen() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};

        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Completes at the next of them.
    pub(super) async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

#[cfg(not(unix))]
pub(super) struct StopSignals;

#[cfg(not(unix))]
impl StopSignals {
    pub(super) fn listen() -> io::Result<Self> {
        Ok(Self)
    }

    pub(super) async fn next(&mut self) {
        if let Err(error) = tokio::signal::ctrl_c().await {
            tracing::warn!(%error, "cannot listen for Ctrl-C; end the process to stop it");
            std::future::pending::<()>().await;
        }
    }
}

/// Whenever the process is sent SIGHUP, reads the policy again, changed or not, and looks at the files of TLS. Never
/// completes.
#[cfg(unix)]
pub(super) fn reload_signal(
    reloader: Option<Arc<dyn ReloadHandle>>,
    tls: Option<Arc<ServerTls>>,
    manager: ServiceManager,
) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            if reloader.is_none() && tls.is_none() {
                tracing::info!("there is no --config to read again");
            }
            manager.notify(RELOADING);
            let (reloader, tls) = (reloader.clone(), tls.clone());
            // A large file takes a while to read and compile, and nobody's answer should wait for it.
            let done = tokio::task::spawn_blocking(move || {
                // What came of it is in the log.
                reloader.map(|reloader| reloader.reload_now());
                tls.map(|tls| tls.reload_if_changed(SystemClock::new().now()));
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "reading files again failed; what was in force stays");
            }
            manager.notify(READY);
        }
        std::future::pending::<()>().await;
    })
}

#[cfg(not(unix))]
pub(super) fn reload_signal(
    _reloader: Option<Arc<dyn ReloadHandle>>,
    _tls: Option<Arc<ServerTls>>,
    _manager: ServiceManager,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
