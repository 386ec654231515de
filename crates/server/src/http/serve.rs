//! The HTTP listener's bounds, and HTTP/1 as a protocol that the accept loop can serve.
//!
//! Must not know: what is asked or answered, how requests are read, sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::handler::HttpHandler;
use super::http1;
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    ConnectionHandler, DrainOutcome, Listener, ListenerLimits, Peer, ShutdownSignal, Stream, accept,
};

/// What a server allows HTTP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// What its listener allows.
    pub listener: ListenerLimits,
    /// Time to send a request's head, counted from when the connection is ready for it; so also the time that a
    /// connection may be idle.
    pub header_timeout: Duration,
    /// Time to send a request's body.
    pub body_timeout: Duration,
    /// Whether plain requests are read without hyper. Without it hyper reads every request: slower, with the same responses.
    pub fast_path: bool,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            listener: ListenerLimits::default(),
            header_timeout: Duration::from_secs(5),
            body_timeout: Duration::from_secs(10),
            fast_path: true,
        }
    }
}

/// Has `handler` answer every request that comes to `listener`, until `shutdown` completes.
pub(crate) async fn serve_http<A: HttpHandler>(
    limits: HttpLimits,
    listener: Listener,
    handler: Arc<A>,
    shutdown: impl Future<Output = ()>,
) -> DrainOutcome {
    let http = Arc::new(Http { limits, handler });
    accept(listener, http, limits.listener, shutdown).await
}

/// HTTP/1 and the handler of its requests.
struct Http<A> {
    limits: HttpLimits,
    handler: Arc<A>,
}

impl<A: HttpHandler> ConnectionHandler for Http<A> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: ShutdownSignal,
    ) -> impl Future<Output = ()> + Send + 'static {
        http1::serve(
            self.limits,
            Arc::clone(&self.handler),
            stream,
            peer,
            stopping,
        )
    }

    fn counters(&self) -> &ListenerCounters {
        self.handler.counters()
    }
}
