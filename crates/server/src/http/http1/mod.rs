//! HTTP/1 on one connection: the fast path reads plain requests itself and hands everything else to hyper.
//!
//! A connection begins on the fast path. A request stays there if it is HTTP/1.1, GET or POST, whole in what was read, and
//! has nothing in its head that asks for more than a response on a connection that stays open (`fast_parser.rs` has the exact
//! list). At the first other request the bytes of it and of everything behind it go to hyper, which then has the connection
//! until its end. Errors are hyper's too: the fast path never refuses a request. Must not know: what is asked or answered,
//! sockets.

mod buffers;
mod fast_parser;
mod fast_path;
mod hyper_connection;
mod idle;
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
        false => Ok(Some(Vec::new())),
    };
    match served {
        Ok(None) => {}
        // In a box, so that the many connections that never come here are small.
        Ok(Some(begun)) => {
            let stream = PrefixedStream::new(begun, stream);
            Box::pin(hyper_connection::serve(
                limits, handler, stream, peer, stopping,
            ))
            .await;
        }
        // The client's doing: it left without a word.
        Err(error) => tracing::debug!(%error, "a connection ended early"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{LocalEndpoint, ShutdownTrigger};
    use crate::{App, demo_policy};
    use tollgate_store::SystemClock;

    /// Ten thousand idle connections are to take less than 100 MB, which is 10 kB each. The runtime adds little to the task
    /// itself, and buffers belong to the thread.
    #[test]
    fn an_idle_connection_is_small() {
        let app = App::new(&demo_policy().unwrap(), 1, SystemClock::new()).unwrap();
        let address = ([127, 0, 0, 1], 80).into();
        let peer = Peer {
            address: Some(address),
            local: LocalEndpoint::Tcp(address),
        };
        let (stream, _client) = tokio::io::duplex(1);
        let (_stop, stopping) = ShutdownTrigger::new();
        let task = serve(HttpLimits::default(), Arc::new(app), stream, peer, stopping);
        let size = size_of_val(&task);
        assert!(size <= 3_072, "{size} bytes");
    }
}
