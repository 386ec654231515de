//! The accept loop: it caps open connections, contains panics to one connection, and drains connections at shutdown.
//!
//! Must not know: any protocol.

use std::future::Future;
use std::io;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::task::{Id, JoinError, JoinSet, yield_now};
use tokio::time::timeout;

use super::client_network::ClientNetwork;
use super::listener::{Listener, Peer};
use super::open_connections::{OpenConnections, RoomForConnection};
use super::proxy_protocol::ProxyProtocol;
use super::shutdown::{ShutdownSignal, ShutdownTrigger};
use super::shutdown_or_timeout::confirmed_timeout;
use super::stream::Stream;
use super::tls::ListenerTls;
use crate::listen::counters::{ListenerCounters, increment};

/// How long the loop pauses after a failed `accept`. Without file descriptors every attempt fails immediately.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A protocol: serves one connection at a time.
pub trait ConnectionHandler: Send + Sync + 'static {
    /// Serves one connection until it ends. When `stopping` triggers, it finishes the requests in progress and ends.
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static;

    /// The counters of this protocol's listener.
    fn counters(&self) -> &ListenerCounters;

    /// The bytes sent to a connection above `max_connections` before it is closed. Nothing is sent inside TLS.
    fn over_capacity_reply(&self) -> &'static [u8] {
        b""
    }
}

/// The limits that every listener has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ListenerLimits {
    /// Open connections at the same time. For a further one the listener closes the oldest connection that has no answered
    /// request; if all have one, it closes the further one.
    pub max_connections: usize,
    /// The same for the connections of one IPv4 address or IPv6 /64.
    pub max_connections_per_address: usize,
    /// Time to complete the TLS handshake, and before it to receive the header of the PROXY protocol.
    pub handshake_timeout: Duration,
    /// A connection is closed when the client reads none of the bytes sent to it for this long, or fewer than 240 in a second for
    /// longer.
    pub write_timeout: Duration,
    /// Time that open connections have to finish when the server stops.
    pub drain_timeout: Duration,
}

impl Default for ListenerLimits {
    fn default() -> Self {
        Self {
            max_connections: 10_000,
            max_connections_per_address: usize::MAX,
            handshake_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(20),
            drain_timeout: Duration::from_secs(10),
        }
    }
}

/// How a listener's shutdown ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DrainOutcome {
    /// Connections that had not finished within `drain_timeout` and were aborted.
    pub aborted: usize,
}

/// Serves connections to `listener` until `shutdown` completes, then drains the open ones. Returns for no other reason.
pub async fn accept<P: ConnectionHandler>(
    listener: Listener,
    protocol: Arc<P>,
    bounds: ListenerLimits,
    shutdown: impl Future<Output = ()>,
) -> DrainOutcome {
    let mut shutdown = pin!(shutdown);
    let (stop, stopping) = ShutdownTrigger::new();
    let counters = protocol.counters();
    // Every connection task is in this set, so none outlives the loop and every panic is counted.
    let mut connections = JoinSet::new();
    let mut open = OpenConnections::new(bounds.max_connections, bounds.max_connections_per_address);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            Some(ended) = connections.join_next_with_id() => {
                open.remove_ended(record_task_end(counters, &ended));
            }
            accepted = listener.accept(bounds.write_timeout) => match accepted {
                Ok((stream, peer)) => {
                    while let Some(ended) = connections.try_join_next_with_id() {
                        open.remove_ended(record_task_end(counters, &ended));
                    }
                    let address = peer.address.map(|address| ClientNetwork::from(address.ip()));
                    let room = open.make_room(address);
                    if room == RoomForConnection::Evicted {
                        increment(&counters.evicted_connections);
                        // Connections read what has arrived before the next one can displace them.
                        yield_now().await;
                    }
                    if room != RoomForConnection::Full {
                        increment(&counters.accepted);
                        let (stopping, progress) = (stopping.clone(), peer.progress.clone());
                        let task = match (listener.proxy_protocol(), listener.tls()) {
                            (None, None) => connections.spawn(protocol.serve(stream, peer, stopping)),
                            (proxy_protocol, tls) => {
                                let handshake = Handshake {
                                    proxy_protocol: proxy_protocol.cloned(),
                                    tls: tls.cloned(),
                                    timeout: bounds.handshake_timeout,
                                };
                                let ready = handshake.run(stream, peer);
                                connections.spawn(serve_after(ready, Arc::clone(&protocol), stopping))
                            }
                        };
                        open.add(address, progress, task);
                    } else {
                        increment(&counters.refused_connections);
                        // The reply is dropped if the send buffer has no room for it. Inside TLS nothing can be sent before the
                        // handshake.
                        let _sent = listener.tls().is_none() && stream.try_send(protocol.over_capacity_reply());
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
    // From here on the operating system refuses new connections instead of queueing them.
    drop(listener);
    stop.trigger();
    drain(connections, counters, bounds.drain_timeout).await
}

/// Waits for the open connections to finish, and aborts those that have not finished within `time`.
async fn drain(
    mut connections: JoinSet<()>,
    counters: &ListenerCounters,
    time: Duration,
) -> DrainOutcome {
    let drained = async {
        while let Some(ended) = connections.join_next_with_id().await {
            record_task_end(counters, &ended);
        }
    };
    if timeout(time, drained).await.is_ok() {
        return DrainOutcome { aborted: 0 };
    }
    let cut = connections.len();
    connections.shutdown().await;
    counters.closed.fetch_add(cut as u64, Ordering::Release);
    DrainOutcome { aborted: cut }
}

/// What comes before the protocol: the header of a proxy, then TLS.
struct Handshake {
    proxy_protocol: Option<Arc<ProxyProtocol>>,
    tls: Option<ListenerTls>,
    /// The time for each of the two.
    timeout: Duration,
}

impl Handshake {
    async fn run(self, mut stream: Stream, mut peer: Peer) -> io::Result<(Stream, Peer)> {
        let connection = peer.address;
        let handshake = async {
            if let Some(proxy_protocol) = self.proxy_protocol {
                let named = proxy_protocol.read_header(&mut stream, peer, self.timeout);
                peer = named.await?;
            }
            let Some(tls) = self.tls else {
                return Ok((stream, peer));
            };
            let slow =
                |_elapsed| io::Error::new(io::ErrorKind::TimedOut, "the TLS handshake timed out");
            let encrypted = stream.accept_tls(tls.acceptor());
            let encrypted = confirmed_timeout(self.timeout, encrypted).await;
            Ok((encrypted.map_err(slow)??, peer))
        };
        let result = handshake.await;
        if let Err(error) = &result {
            tracing::debug!(%error, peer = ?connection, "handshake failed");
        }
        result
    }
}

/// Serves a connection after its handshake. The handshake runs in the connection's own task, so a slow one delays no other
/// connection and counts towards `max_connections`.
async fn serve_after<P: ConnectionHandler>(
    ready: impl Future<Output = io::Result<(Stream, Peer)>>,
    protocol: Arc<P>,
    stopping: ShutdownSignal,
) {
    // Boxed, because the handshake future is large and the task would keep its space.
    let ready = tokio::select! {
        biased;
        ready = Box::pin(ready) => ready,
        () = stopping.wait() => return,
    };
    match ready {
        Ok((stream, peer)) => protocol.serve(stream, peer, stopping).await,
        Err(_logged) => increment(&protocol.counters().failed_handshakes),
    }
}

/// Whether the error concerns only one connection, which ended while it was queued. The next `accept` can follow immediately.
fn is_about_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::ConnectionRefused
            | io::ErrorKind::Interrupted
    )
}

/// Counts a finished connection task, and its panic if it had one. Returns the task.
fn record_task_end(counters: &ListenerCounters, ended: &Result<(Id, ()), JoinError>) -> Id {
    counters.closed.fetch_add(1, Ordering::Release);
    match ended {
        Ok((id, ())) => *id,
        Err(error) => {
            if error.is_panic() {
                increment(&counters.panics);
                tracing::error!(%error, "connection panicked");
            }
            error.id()
        }
    }
}
