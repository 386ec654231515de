//! A listener on a free port that runs until it is stopped. Must not know: any protocol.

use std::net::SocketAddr;
use std::pin::Pin;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tollgate_server::listen::{DrainOutcome, Listener};

/// Far above any duration here; only a hang reaches it.
const DEADLINE: Duration = Duration::from_secs(30);

/// Completes when the listener has to stop.
pub(crate) type Shutdown = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A running listener.
pub(crate) struct RunningServer {
    pub(crate) address: SocketAddr,
    stop: oneshot::Sender<()>,
    run: JoinHandle<DrainOutcome>,
}

impl RunningServer {
    /// Runs what `serve` returns for a listener.
    pub(crate) async fn start<F>(serve: impl FnOnce(Listener, Shutdown) -> F) -> Self
    where
        F: Future<Output = DrainOutcome> + Send + 'static,
    {
        Self::start_at(SocketAddr::from(([127, 0, 0, 1], 0)), serve).await
    }

    /// The same at this address.
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
        // If a test ends without stopping its server, the sender is dropped, which stops it too.
        let shutdown = Box::pin(async { drop(stopped.await) });
        #[expect(
            clippy::disallowed_methods,
            reason = "the handle is kept, and every test that stops it awaits it"
        )]
        let run = tokio::spawn(serve(listener.into(), shutdown));
        Self { address, stop, run }
    }

    /// Stops it and waits until it has stopped.
    pub(crate) async fn stop(self) -> DrainOutcome {
        timeout(DEADLINE, self.start_stopping())
            .await
            .unwrap()
            .unwrap()
    }

    /// Starts to stop it.
    pub(crate) fn start_stopping(self) -> JoinHandle<DrainOutcome> {
        self.stop.send(()).unwrap();
        self.run
    }
}
