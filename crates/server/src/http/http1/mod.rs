//! HTTP/1 on one connection: the fast path parses plain requests itself and hands all others to hyper.
//!
//! A connection starts on the fast path. A request is plain if it is HTTP/1.1, GET or POST, complete in one read, and without a
//! header field that needs special handling; `fast_parser.rs` has the exact list. At the first other request hyper gets the
//! unread bytes and keeps the connection until its end. The fast path never rejects a request, so all errors are hyper's. Must
//! not know: endpoints, sockets.

mod buffers;
mod fast_parser;
mod fast_path;
mod hyper_connection;
pub(super) mod response_writer;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::HttpLimits;
use crate::http::handler::HttpHandler;
use crate::listen::{Peer, PrefixedStream, ShutdownSignal};

/// Serves one connection until it ends.
pub(super) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin + Send>(
    limits: HttpLimits,
    handler: Arc<A>,
    mut stream: S,
    peer: Peer,
    stopping: ShutdownSignal,
) {
    let served = match limits.fast_path {
        true => fast_path::serve(limits, &*handler, &mut stream, &peer, &stopping).await,
        false => Ok(Some((Vec::new(), handler.reserve_buffers()))),
    };
    match served {
        Ok(None) => {}
        // Boxed, so that connections that stay on the fast path are small.
        Ok(Some((unread, reserved))) => {
            let stream = PrefixedStream::new(unread, reserved, stream);
            Box::pin(hyper_connection::serve(
                limits, handler, stream, peer, stopping,
            ))
            .await;
        }
        // The client disconnected.
        Err(error) => tracing::debug!(%error, "connection ended early"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{LocalEndpoint, ShutdownTrigger};
    use crate::{HttpApi, demo_policy};
    use tollgate_store::SystemClock;

    /// Ten thousand idle connections have to fit into 100 MB, which is 10 kB each. The runtime adds little to the task, and the
    /// buffers belong to the thread.
    #[test]
    fn an_idle_connection_is_small() {
        let app = HttpApi::new(&demo_policy().unwrap(), 1, SystemClock::new()).unwrap();
        let address = ([127, 0, 0, 1], 80).into();
        let peer = Peer::new(Some(address), LocalEndpoint::Tcp(address));
        let (stream, _client) = tokio::io::duplex(1);
        let (_stop, stopping) = ShutdownTrigger::new();
        let task = serve(HttpLimits::default(), Arc::new(app), stream, peer, stopping);
        let size = size_of_val(&task);
        assert!(size <= 3_072, "{size} bytes");
    }
}
