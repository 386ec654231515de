//! Signals: SIGINT and SIGTERM stop the server, SIGHUP reloads its files, SIGXFSZ does nothing.
//!
//! Must not know: what a stop means for connections.

use std::io;
use std::sync::Arc;

use tollgate_server::listen::{ServerTls, TlsReload};
use tollgate_service::reload::ReloadHandle;
use tollgate_store::{Clock as _, SystemClock};

use super::access_log::ReopenSignal;
use super::service_manager::{READY, RELOADING, ServiceManager};

/// The stop signals: SIGINT (Ctrl-C) and SIGTERM.
#[cfg(unix)]
pub(super) struct StopSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl StopSignals {
    /// Starts to listen for the signals.
    pub(super) fn listen() -> io::Result<Self> {
        use rustix::process::Signal;
        use tokio::signal::unix::{SignalKind, signal};

        // The handler stays when its stream is dropped. Without it a write beyond the limit of file sizes (`ulimit -f`) would end
        // the process; with it the write fails, and the save of the state is counted as failed.
        let _writes_fail = signal(SignalKind::from_raw(Signal::XFSZ.as_raw()))?;
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
        })
    }

    /// Completes at the next signal.
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
            tracing::warn!(%error, "cannot listen for Ctrl-C; kill the process to stop it");
            std::future::pending::<()>().await;
        }
    }
}

/// On every SIGHUP, reloads the policy, changed or not, checks the TLS files, and opens the access log again. Never
/// completes.
#[cfg(unix)]
pub(super) fn reload_signal(
    reloader: Option<Arc<dyn ReloadHandle>>,
    tls: Option<Arc<ServerTls>>,
    access_log: Option<ReopenSignal>,
    manager: ServiceManager,
) -> io::Result<impl Future<Output = ()>> {
    use tokio::signal::unix::{SignalKind, signal};

    let mut hangup = signal(SignalKind::hangup())?;
    Ok(async move {
        while hangup.recv().await.is_some() {
            if let Some(access_log) = &access_log {
                access_log.send();
            } else if reloader.is_none() && tls.is_none() {
                tracing::info!("nothing to reload; --config and --tls-cert are not set");
            }
            manager.notify(RELOADING);
            let (reloader, tls) = (reloader.clone(), tls.clone());
            // A large policy takes time to compile and must not block a worker thread.
            let done = tokio::task::spawn_blocking(move || {
                // Both log what changed and what they refuse.
                reloader.map(|reloader| reloader.reload_now());
                let reloaded = tls.map(|tls| tls.reload_if_changed(SystemClock::new().now()));
                if reloaded == Some(TlsReload::Unchanged) {
                    tracing::info!("TLS files have not changed since they were last read");
                }
            });
            if let Err(error) = done.await {
                tracing::error!(%error, "reload failed; the old policy and certificates stay in use");
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
    _access_log: Option<ReopenSignal>,
    _manager: ServiceManager,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
