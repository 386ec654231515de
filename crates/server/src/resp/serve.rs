//! The protocol of Redis as one that listeners can serve.
//!
//! Must not know: what is asked or answered, sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use tollgate_store::Clock;

use super::connection::Connection;
use super::server::Resp;
use crate::listen::counters::ListenerCounters;
use crate::listen::{Bounds, Ended, Listener, Peer, Serve, Stopping, Stream, accept};

/// What a server allows Redis clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct RespLimits {
    /// What its listener allows.
    pub bounds: Bounds,
    /// A connection on which no command is completed for this long is closed, after at most twice as long.
    pub idle: Duration,
    /// Bytes held for all connections together: beginnings of large commands, and answers that were not taken. A
    /// connection that would hold more is closed.
    pub held: usize,
}

impl Default for RespLimits {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            idle: Duration::from_secs(300),
            held: 64 << 20,
        }
    }
}

impl<C: Clock + 'static> Resp<C> {
    /// Serves Redis clients on `listener` until `shutdown` completes, then lets every connection have the answers to
    /// what it has sent. Never ends for any other reason.
    pub async fn run(
        self: Arc<Self>,
        listener: Listener,
        limits: RespLimits,
        shutdown: impl Future<Output = ()>,
    ) -> Ended {
        let protocol = Protocol {
            limits,
            server: self,
        };
        accept(listener, Arc::new(protocol), limits.bounds, shutdown).await
    }
}

struct Protocol<C> {
    limits: RespLimits,
    server: Arc<Resp<C>>,
}

impl<C: Clock + 'static> Serve for Protocol<C> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: Stopping,
    ) -> impl Future<Output = ()> + Send + 'static {
        Connection::new(stream, &peer, Arc::clone(&self.server)).live(self.limits, stopping)
    }

    fn counters(&self) -> &ListenerCounters {
        self.server.counters()
    }

    fn no_room(&self) -> &'static [u8] {
        b"-ERR max number of clients reached\r\n"
    }
}
