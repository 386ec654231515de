//! The limits of the RESP listener, and RESP as a protocol for the accept loop.
//!
//! Must not know: commands, sockets.

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

/// The limits of the RESP listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespLimits {
    /// The limits of its listener.
    pub listener: ListenerLimits,
    /// A connection that completes no command for this long is closed, at the latest after twice this time.
    pub idle_timeout: Duration,
    /// Time to complete a command of which more than 4 KiB are buffered, at the latest twice this time.
    pub command_timeout: Duration,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            idle_timeout: Duration::from_secs(300),
            command_timeout: Duration::from_secs(10),
        }
    }
}

impl<C: Clock + 'static> RespServer<C> {
    /// Serves Redis clients of `listener` until `shutdown` completes, then answers the input that has arrived on each
    /// connection. Returns for no other reason.
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
