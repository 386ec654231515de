//! The limits of the HTTP listener, and HTTP/1 as a protocol for the accept loop.
//!
//! Must not know: endpoints, how requests are parsed, sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::handler::HttpHandler;
use super::http1;
use crate::listen::counters::ListenerCounters;
use crate::listen::{
    ConnectionHandler, DrainOutcome, Listener, ListenerLimits, Peer, ShutdownSignal, Stream, accept,
};

/// The limits of the HTTP listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// The limits of its listener.
    pub listener: ListenerLimits,
    /// Time to receive the head of a request, counted from when the connection is ready for it. This is also the idle timeout.
    pub header_timeout: Duration,
    /// Time to receive the body of a request.
    pub body_timeout: Duration,
    /// Whether plain requests are parsed without hyper. Otherwise hyper parses every request, which is slower and gives the
    /// same responses.
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

/// The admin listener has few clients. Half of its connections may come from one address: a tunnel or a sidecar hides the
/// addresses of its clients.
const MAX_ADMIN_CONNECTIONS: usize = 512;
const MAX_ADMIN_CONNECTIONS_PER_ADDRESS: usize = 256;

impl HttpLimits {
    /// The limits of the admin listener.
    #[must_use]
    pub fn for_admin() -> Self {
        let mut limits = Self::default();
        limits.listener.max_connections = MAX_ADMIN_CONNECTIONS;
        limits.listener.max_connections_per_address = MAX_ADMIN_CONNECTIONS_PER_ADDRESS;
        limits
    }
}

/// Has `handler` answer every request to `listener` until `shutdown` completes.
pub(crate) async fn serve_http<A: HttpHandler>(
    limits: HttpLimits,
    listener: Listener,
    handler: Arc<A>,
    shutdown: impl Future<Output = ()>,
) -> DrainOutcome {
    let http = Arc::new(Http1Protocol { limits, handler });
    accept(listener, http, limits.listener, shutdown).await
}

/// HTTP/1 with the handler of its requests.
struct Http1Protocol<A> {
    limits: HttpLimits,
    handler: Arc<A>,
}

impl<A: HttpHandler> ConnectionHandler for Http1Protocol<A> {
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
