//! What the operating system tells a server: to stop, or to read its policy again.
//!
//! Must not know: what either means for connections.

use std::io;
use std::sync::Arc;

use tollgate_engine::reload::Reload;

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

/// Reads the policy again whenever the process is sent SIGHUP, changed or not. Never completes.
#[cfg(unix)]
pub(super) fn reload_signal(
    reloader: Option<Arc<dyn Reload>>,
) -> io::Result<impl Future<Output = ()>> {
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
pub(super) fn reload_signal(
    _reloader: Option<Arc<dyn Reload>>,
) -> io::Result<impl Future<Output = ()>> {
    Ok(std::future::pending())
}
