//! The HTTP listener's bounds, and HTTP/1 as a protocol that the accept loop can serve.
//!
//! Must not know: what is asked or answered, how requests are read, sockets.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use super::handler::HttpHandler;
use super::http1;
use crate::listen::counters::ListenerCounters;
use crate::listen::{Bounds, Ended, Listener, Peer, Serve, Stopping, Stream, accept};

/// What a server allows HTTP clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct HttpLimits {
    /// What its listener allows.
    pub bounds: Bounds,
    /// Time to send a request's head, counted from when the connection is ready for it; so also the time that a
    /// connection may be idle.
    pub head: Duration,
    /// Time to send a request's body.
    pub body: Duration,
    /// Whether plain requests are read without hyper. Without it hyper reads every request: slower, with the same responses.
    pub fast_path: bool,
}

impl Default for HttpLimits {
    fn default() -> Self {
        Self {
            bounds: Bounds::default(),
            head: Duration::from_secs(5),
            body: Duration::from_secs(10),
            fast_path: true,
        }
    }
}

/// Has `handler` answer every request that comes to `listener`, until `shutdown` completes.
pub(crate) async fn run<A: HttpHandler>(
    limits: HttpLimits,
    listener: Listener,
    handler: Arc<A>,
    shutdown: impl Future<Output = ()>,
) -> Ended {
    let http = Arc::new(Http { limits, handler });
    accept(listener, http, limits.bounds, shutdown).await
}

/// HTTP/1 and the handler of its requests.
struct Http<A> {
    limits: HttpLimits,
    handler: Arc<A>,
}

impl<A: HttpHandler> Serve for Http<A> {
    fn serve(
        &self,
        stream: Stream,
        peer: Peer,
        stopping: Stopping,
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
