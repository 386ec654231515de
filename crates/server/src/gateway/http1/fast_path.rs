//! Serves plain requests without hyper, one after the other, until a request is not plain.
//!
//! A client that leaves ends its request. Must not know: what makes a request plain, routes, upstreams, sockets.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::pin;
use std::task::Poll;

use hyper::Method;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, sleep_until};
use tollgate_store::Clock;

use super::fast_input::{FastInput, UnreadInput};
use super::fast_parser::PlainRequest;
use super::response_sender::{ResponseSender, Sent};
use crate::gateway::client_requests::ClientRequests;

use crate::listen::{IdleConnection, ShutdownOrTimeout, ShutdownSignal};

/// Why the fast path has ended.
pub(super) enum FastPathEnd {
    /// The connection is closed.
    Closed,
    /// hyper has to read these bytes. The head to which they belong is awaited since then.
    NotPlain {
        unread: Vec<u8>,
        waiting_since: Instant,
    },
}

/// Serves plain requests. The first one is awaited since then.
pub(super) async fn serve<C: Clock + 'static, S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut ClientRequests<C>,
    stream: &mut S,
    waiting_since: Instant,
    stopping: &ShutdownSignal,
) -> FastPathEnd {
    let timeout = client.limits().header_timeout;
    let (stopped, timer) = (
        pin!(stopping.wait()),
        pin!(sleep_until(waiting_since + timeout)),
    );
    let wake_events = ShutdownOrTimeout::new(stopping, stopped, timer);
    let mut idle = IdleConnection::since(wake_events, waiting_since, timeout);
    let mut unread = UnreadInput::default();
    loop {
        let arrived = idle.wait_for(|context| unread.poll_head(stream, context));
        let request = match arrived.await {
            Ok(Some(FastInput::Plain(request))) => request,
            Ok(Some(FastInput::NotPlain)) => {
                return FastPathEnd::NotPlain {
                    unread: unread.into_bytes(),
                    waiting_since: idle.waiting_since(),
                };
            }
            // Idle for too long, or the server stops.
            Ok(None) => {
                let _gone = stream.shutdown().await;
                return FastPathEnd::Closed;
            }
            Ok(Some(FastInput::Closed)) | Err(_) => return FastPathEnd::Closed,
        };
        match exchange(client, request, stream, &mut unread, stopping).await {
            Ok(Sent::KeepAlive) => idle.reset(),
            Ok(Sent::Last) => {
                let _gone = stream.shutdown().await;
                return FastPathEnd::Closed;
            }
            Err(error) => {
                tracing::debug!(%error, "connection ended early");
                return FastPathEnd::Closed;
            }
        }
    }
}

/// Serves one request.
async fn exchange<C: Clock + 'static, S: AsyncRead + AsyncWrite + Unpin>(
    client: &mut ClientRequests<C>,
    request: PlainRequest,
    stream: &mut S,
    unread: &mut UnreadInput,
    stopping: &ShutdownSignal,
) -> io::Result<Sent> {
    let PlainRequest { head, is_last } = request;
    let is_head_request = head.method == Method::HEAD;
    let response = {
        let mut handling = pin!(client.handle(head, None));
        let response = poll_fn(|context| match handling.as_mut().poll(context) {
            Poll::Ready(response) => Poll::Ready(Ok(response)),
            // Leaving this block cancels the work of the upstream.
            Poll::Pending => unread.poll_client_gone(stream, context).map(Err),
        });
        response.await?
    };
    let is_last = is_last || stopping.is_triggered();
    let mut sender = ResponseSender::new(response, is_head_request, is_last);
    poll_fn(|context| match sender.poll_send(stream, context) {
        Poll::Pending => unread.poll_client_gone(stream, context).map(Err),
        sent => sent,
    })
    .await
}
