//! Listening for Redis clients: accept, serve, and stop, each within bounds.
//!
//! Must not know: what is asked or answered.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;
use tollgate_store::Clock;

use super::connection::Connection;
use super::server::Resp;
use crate::counters::count;
use crate::run::{ACCEPT_PAUSE, Ended, is_about_one_connection};

/// What a server allows Redis clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespLimits {
    /// Connections open at the same time. Further ones are told so and closed.
    pub connections: usize,
    /// A connection on which no command is completed for this long is closed, after at most twice as long. Also the time
    /// that a client has to make room for answers.
    pub idle: Duration,
    /// Time that connections have to take their last answers when the server stops.
    pub drain: Duration,
    /// Bytes held for all connections together: beginnings of large commands, and answers that were not taken. A
    /// connection that would hold more is closed.
    pub held: usize,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            idle: Duration::from_secs(300),
            drain: Duration::from_secs(10),
            held: 64 << 20,
        }
    }
}

/// Serves Redis clients on `listener` until `shutdown` completes, then lets every connection have the answers to what
/// it has sent. Never ends for any other reason.
pub async fn run<C, S>(listener: TcpListener, server: Arc<Resp<C>>, shutdown: S) -> Ended
where
    C: Clock + 'static,
    S: Future<Output = ()>,
{
    run_with(RespLimits::default(), listener, server, shutdown).await
}

/// Like [`run`], with other limits than the default ones.
pub async fn run_with<C, S>(
    limits: RespLimits,
    listener: TcpListener,
    server: Arc<Resp<C>>,
    shutdown: S,
) -> Ended
where
    C: Clock + 'static,
    S: Future<Output = ()>,
{
    let mut shutdown = pin!(shutdown);
    let (stop, stopped) = watch::channel(false);
    // Tasks live in this set and nowhere else: none outlives the run, and none ends unseen.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => note(&server, &ended),
            accepted = listener.accept() => match accepted {
                Ok((stream, _)) => {
                    while let Some(ended) = connections.try_join_next() {
                        note(&server, &ended);
                    }
                    if connections.len() >= limits.connections {
                        count(&server.counters().refused_connections);
                        // If there is no room for even this, it is not said.
                        let _said = stream.try_write(b"-ERR max number of clients reached\r\n").is_ok();
                        continue;
                    }
                    // Answers are whole: waiting to fill a packet only delays them.
                    if let Err(error) = stream.set_nodelay(true) {
                        tracing::debug!(%error, "could not set TCP_NODELAY");
                    }
                    let connection = Connection::new(stream, Arc::clone(&server));
                    connections.spawn(connection.live(limits, stopped.clone()));
                }
                Err(error) => {
                    count(&server.counters().accept_errors);
                    tracing::warn!(%error, "could not accept a connection");
                    if !is_about_one_connection(&error)
                        && timeout(ACCEPT_PAUSE, &mut shutdown).await.is_ok()
                    {
                        break;
                    }
                }
            },
        }
    }
    // From here on new connections are refused by the operating system, not left waiting.
    drop(listener);
    stop.send_replace(true);
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            note(&server, &ended);
        }
    };
    if timeout(limits.drain, drained).await.is_ok() {
        return Ended { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    Ended { cut }
}

/// Sees a connection's task end. A panic in it is counted, and ends nothing else.
fn note<C: Clock>(server: &Resp<C>, ended: &Result<(), JoinError>) {
    if let Err(error) = ended
        && error.is_panic()
    {
        count(&server.counters().panics);
        tracing::error!(%error, "a connection panicked");
    }
}
