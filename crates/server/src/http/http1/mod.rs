//! HTTP/1 on one connection: the fast path reads plain requests itself and hands everything else to hyper.
//!
//! A connection begins on the fast path. A request stays there if it is HTTP/1.1, GET or POST, whole in what was read, and
//! has nothing in its head that asks for more than a response on a connection that stays open (`fast_parser.rs` has the exact
//! list). At the first other request the bytes of it and of everything behind it go to hyper, which then has the connection
//! until its end. Errors are hyper's too: the fast path never refuses a request. Must not know: what is asked or answered,
//! sockets.

mod fast_parser;
mod fast_path;
mod fast_path_fleet;
mod hyper_connection;
mod idle;
pub(super) mod response_writer;

use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};

use crate::http::Limits;
use crate::http::handler::HttpHandler;
use crate::listen::{Peer, PrefixedStream, Stopping};

/// Serves one connection until it ends.
pub(super) async fn serve<A: HttpHandler, S: AsyncRead + AsyncWrite + Unpin + Send>(
    limits: Limits,
    handler: Arc<A>,
    mut stream: S,
    peer: Peer,
    stopping: Stopping,
) {
    let served = if !limits.fast_path {
        Ok(Some(Vec::new()))
    } else if handler.waits() {
        // In a box, so that connections that never wait for a fleet are small.
        let served = fast_path_fleet::serve(limits, &*handler, &mut stream, &peer, &stopping);
        Box::pin(served).await
    } else {
        fast_path::serve(limits, &*handler, &mut stream, &peer, &stopping).await
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
