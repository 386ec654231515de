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
use super::shutdown::{ShutdownSignal, ShutdownTrigger};
use super::stream::Stream;
use super::tls::ListenerTls;
use crate::listen::counters::{ListenerCounters, increment};

/// How long to leave a listener alone that cannot accept: out of file descriptors, every attempt would fail at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A protocol: what is done with one connection.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// The whole life of one connection. Once `stopping` is said it finishes what is under way and ends.
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// What is counted when connections cannot be had.
    fn counters(&self) -> &ListenerCounters;

    /// The last words to a connection for which there is no room.
    fn over_capacity_reply(&self) -> &'static [u8] {
        b""
    }
}

/// What a listener allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerLimits {
    /// Connections open at the same time. Further ones are closed at once.
    pub max_connections: usize,
    /// Time to complete the handshake of TLS.
    pub handshake_timeout: Duration,
    /// For so long a client may take nothing of what it is sent.
    pub write_timeout: Duration,
    /// Time that connections have to finish when the server stops.
    pub drain_timeout: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            handshake_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How a listener ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Connections that had not finished in time and were cut.
    pub aborted: usize,
}

/// Serves connections to `listener` until `shutdown` completes, then lets open ones finish. Never ends for any other
/// reason.
pub async fn accept<P: ConnectionHandler>(
    listener: Listener,
    protocol: Arc<P>,
    bounds: ListenerLimits,
    shutdown: impl Future<Output = ()>,
) -> DrainOutcome {
    let mut shutdown = pin!(shutdown);
    let (stop, stopping) = ShutdownTrigger::new();
    let counters = protocol.counters();
    // Tasks live in this set and nowhere else: none outlives the run, and none ends unseen.
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next() => note(counters, &ended),
            accepted = listener.accept(bounds.write_timeout) => match accepted {
                Ok((stream, peer)) => {
                    while let Some(ended) = connections.try_join_next() {
                        note(counters, &ended);
                    }
                    if connections.len() < bounds.max_connections {
                        increment(&counters.accepted);
                        let stopping = stopping.clone();
                        match listener.tls() {
                            None => connections.spawn(protocol.serve(stream, peer, stopping)),
                            Some(tls) => {
                                let stream = shaken(tls.clone(), stream, bounds.handshake_timeout);
                                let protocol = Arc::clone(&protocol);
                                connections.spawn(secured(stream, protocol, peer, stopping))
                            }
                        };
                    } else {
                        increment(&counters.refused_connections);
                        // If there is no room for even this, it is not said; and inside TLS nothing can be said yet.
                        let _said = listener.tls().is_none() && stream.try_send(protocol.over_capacity_reply());
                    }
                }
                Err(error) => {
                    increment(&counters.accept_errors);
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
    stop.trigger();
    let drained = async {
        while let Some(ended) = connections.join_next().await {
            note(counters, &ended);
        }
    };
    if timeout(bounds.drain_timeout, drained).await.is_ok() {
        return DrainOutcome { aborted: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    counters.closed.fetch_add(cut as u64, Ordering::Release);
    DrainOutcome { aborted: cut }
}

/// The handshake, within its time.
async fn shaken(tls: ListenerTls, stream: Stream, time: Duration) -> io::Result<Stream> {
    let handshake = stream.accept_tls(tls.acceptor());
    let slow = |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "the handshake takes too long");
    timeout(time, handshake).await.map_err(slow)?
}

/// A connection that is served once the handshake is done, which happens in its own task: a slow one keeps nobody waiting,
/// and counts as a connection.
async fn secured<P: ConnectionHandler>(
    stream: impl Future<Output = io::Result<Stream>>,
    protocol: Arc<P>,
    peer: Peer,
    stopping: ShutdownSignal,
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
            increment(&protocol.counters().failed_handshakes);
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
    counters.closed.fetch_add(1, Ordering::Release);
    if let Err(error) = ended
        && error.is_panic()
    {
        increment(&counters.panics);
        tracing::error!(%error, "a connection panicked");
    }
}
