//! A listener on a free port, run until it is told to stop. Must not know: what is spoken on it.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_server::listen::{DrainOutcome, Listener};

/// Far above what anything here takes; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Completes when a listener is to stop.
pub(crate) type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A listener that runs.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    run: JoinHandle<DrainOutcome>,
}

impl RunningServer {
    /// Runs what `serve` makes of a listener.
    pub(crate) async fn start<F>(serve: impl FnOnce(Listener, Shutdown) -> F) -> Self
    where
        F: Future<Output = DrainOutcome> + Send + 'static,
    {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve).await
    }

    /// The same at an address that is free again.
    pub(crate) async fn start_at<F>(
        address: SocketAddr,
        serve: impl FnOnce(Listener, Shutdown) -> F,
    ) -> Self
    where
        F: Future<Output = DrainOutcome> + Send + 'static,
    {
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel();
        // A test that is over without stopping its server drops the sender: that stops it too.
        let shutdown = Box::pin(async { drop(stopped.await) });
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle is kept, and every test that stops it awaits it"
        )]
        let run = tokio::spawn(serve(listener.into(), shutdown));
        Self { address, stop, run }
    }

    /// Tells it to stop and waits until it has.
    pub(crate) async fn stop(self) -> DrainOutcome {
        timeout(DEADLINE, self.start_stopping())
            .await
            .unwrap()
            .unwrap()
    }

    /// Tells it to stop.
    pub(crate) fn start_stopping(self) -> JoinHandle<DrainOutcome> {
        self.stop.send(()).unwrap();
        self.run
    }
}
