//! HTTP/1.1 on one connection of a client: the fast path reads plain requests itself and hands all others to hyper.
//!
//! A request is plain if it is HTTP/1.1, has no body, arrives whole, and has no header field that changes how a connection is
//! used; `fast_parser.rs` has the exact list. hyper gets the unread bytes of any other request, and gives the connection back
//! when it pauses. The fast path refuses no head, so all such errors are hyper's. Must not know: routes, upstreams, sockets.

mod fast_input;
pub(super) mod fast_parser;
mod fast_path;
mod hyper_connection;
mod response_head;
mod response_sender;

use tokio::time::Instant;
use tollgate_store::Clock;

use self::fast_path::FastPathEnd;
use super::client_requests::ClientRequests;
use crate::listen::{PrefixedStream, ShutdownSignal, Stream};

/// Serves one connection until it ends.
pub(super) async fn serve<C: Clock + 'static>(
    mut client: ClientRequests<C>,
    mut stream: PrefixedStream<Stream>,
    stopping: ShutdownSignal,
) {
    // A client that comes while the server stops has to go elsewhere. One that is connected may have sent its request before.
    if stopping.is_triggered() {
        return;
    }
    let mut waiting_since = Instant::now();
    loop {
        let end = fast_path::serve(&mut client, &mut stream, waiting_since, &stopping).await;
        let since = match end {
            FastPathEnd::Closed => return,
            FastPathEnd::NotPlain {
                unread,
                waiting_since,
            } => {
                stream.unread(&unread);
                waiting_since
            }
        };
        // Boxed, because it is large and a connection without a request needs none of it.
        let serving = Box::pin(hyper_connection::serve(
            client.clone(),
            stream,
            since,
            &stopping,
        ));
        match serving.await {
            Some(pause) => (stream, waiting_since) = pause,
            None => return,
        }
    }
}
