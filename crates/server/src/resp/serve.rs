//! The protocol of Redis as one that listeners can serve.
//!
//! Must not know: what is asked or answered, sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::Clock;

use super::connection::RespConnection;
use super::server::RespServer;
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    ConnectionHandler, DrainOutcome, Listener, ListenerLimits, Peer, ShutdownSignal, Stream, accept,
};

/// What a server allows Redis clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespLimits {
    /// What its listener allows.
    pub listener: ListenerLimits,
    /// A connection on which no command is completed for this long is closed, after at most twice as long.
    pub idle_timeout: Duration,
    /// Bytes held for all connections together: beginnings of large commands, and answers that were not taken. A
    /// connection that would hold more is closed.
    pub max_buffered_bytes: usize,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            idle_timeout: Duration::from_secs(300),
            max_buffered_bytes: 64 << 20,
        }
    }
}

impl<C: Clock + 'static> RespServer<C> {
    /// Serves Redis clients on `listener` until `shutdown` completes, then lets every connection have the answers to
    /// what it has sent. Never ends for any other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: RespLimits,
        shutdown: impl Future<Output = ()>,
    ) -> DrainOutcome {
        let protocol = RespProtocol {
            limits,
            server: self,
        };
        accept(listener, Arc::new(protocol), limits.listener, shutdown).await
    }
}

struct RespProtocol<C> {
    limits: RespLimits,
    server: Arc<RespServer<C>>,
}

impl<C: Clock + 'static> ConnectionHandler for RespProtocol<C> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static {
        RespConnection::new(stream, &peer, Arc::clone(&self.server)).run(self.limits, stopping)
    }

    fn counters(&self) -> &ListenerCounters {
        self.server.counters()
    }

    fn over_capacity_reply(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}
