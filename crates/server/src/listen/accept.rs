//! The one loop that accepts: connections are bounded, a panic costs one of them, and the end is graceful.
//!
//! Must not know: any protocol.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::{JoinError, JoinSet};
use tokio::time::timeout;

use super::listener::{Listener, Peer};
use super::stopping::{Stop, Stopping};
use super::stream::Stream;
use super::tls::Secured;
use crate::listen::counters::{ListenerCounters, count};

/// How long to leave a listener alone that cannot accept: out of file descriptors, every attempt would fail at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A protocol: what is done with one connection.
pub trait Serve: Send + Sync + 'static {
    /// The whole life of one connection. Once `stopping` is said it finishes what is under way and ends.
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// What is counted when connections cannot be had.
    fn counters(&self) -> &ListenerCounters;

    /// The last words to a connection for which there is no room.
    fn no_room(&self) -> &'static [u8] {
        b""
    }
}

/// What a listener allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bounds {
    /// Connections open at the same time. Further ones are closed at once.
    pub connections: usize,
    /// Time to complete the handshake of TLS.
    pub handshake: Duration,
    /// For so long a client may take nothing of what it is sent.
    pub patience: Duration,
    /// Time that connections have to finish when the server stops.
    pub drain: Duration,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            connections: 10_000,
            handshake: Duration::from_secs(5),
            patience: Duration::from_secs(20),
            drain: Duration::from_secs(10),
        }
    }
}

/// How a listener ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Connections that had not finished in time and were cut.
    pub cut: usize,
}

/// Serves connections to `listener` until `shutdown` completes, then lets open ones finish. Never ends for any other
/// reason.
pub async fn accept<P: Serve>(
    listener: Listener,
    protocol: Arc<P>,
    bounds: Bounds,
    shutdown: impl Future<Output = ()>,
) -> Ended {
    let mut shutdown = pin!(shutdown);
    let (stop, stopping) = Stop::new();
    let counters = protocol.counters();
    // Tasks live in this set and nowhere else: none outlives the run, and none ends unseen.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => note(counters, &ended),
            accepted = listener.accept(bounds.patience) => match accepted {
                Ok((stream, peer)) => {
                    while let Some(ended) = connections.try_join_next() {
                        note(counters, &ended);
                    }
                    if connections.len() < bounds.connections {
                        count(&counters.accepted);
                        let stopping = stopping.clone();
                        match listener.tls() {
                            None => connections.spawn(protocol.serve(stream, peer, stopping)),
                            Some(tls) => {
                                let stream = shaken(tls.clone(), stream, bounds.handshake);
                                let protocol = Arc::clone(&protocol);
                                connections.spawn(secured(stream, protocol, peer, stopping))
                            }
                        };
                    } else {
                        count(&counters.refused_connections);
                        // If there is no room for even this, it is not said; and inside TLS nothing can be said yet.
                        let _said = listener.tls().is_none() && stream.say_at_once(protocol.no_room());
                    }
                }
                Err(error) => {
                    count(&counters.accept_errors);
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
    stop.say();
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            note(counters, &ended);
        }
    };
    if timeout(bounds.drain, drained).await.is_ok() {
        return Ended { cut: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    counters.ended.fetch_add(cut as u64, Ordering::Release);
    Ended { cut }
}

/// The handshake, within its time.
async fn shaken(tls: Secured, stream: Stream, time: Duration) -> io::Result<Stream> {
    let handshake = stream.secured(tls.acceptor());
    let slow = |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long");
    timeout(time, handshake).await.map_err(slow)?
}

/// A connection that is served once the handshake is done, which happens in its own task: a slow one keeps nobody waiting,
/// and counts as a connection.
async fn secured<P: Serve>(
    stream: impl Future<Output = io::Result<Stream>>,
    protocol: Arc<P>,
    peer: Peer,
    stopping: Stopping,
) {
    // The handshake's state is large and gone afterwards; only its place would stay.
    let stream = tokio::select! {
        biased;
        stream = Box::pin(stream) => stream,
        () = stopping.wait() => return,
    };
    match stream {
        Ok(stream) => protocol.serve(stream, peer, stopping).await,
        Err(error) => {
            count(&protocol.counters().failed_handshakes);
            tracing::debug!(%error, peer = ?peer.address, "a TLS handshake failed");
        }
    }
}

/// Errors of one connection that ended while it waited to be accepted. The next one may be taken at once.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Sees a connection's task end. A panic in it is counted, and ends nothing else.
fn note(counters: &ListenerCounters, ended: &Result<(), JoinError>) {
    counters.ended.fetch_add(1, Ordering::Release);
    if let Err(error) = ended
        && error.is_panic()
    {
        count(&counters.panics);
        tracing::error!(%error, "a connection panicked");
    }
}
