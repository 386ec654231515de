//! Upgraded streams that own their request's permits, without the handler's help.
//!
//! Handlers take `OnUpgrade` out of a request's extensions, and only hyper can make one. So hyper makes ours, too: it serves
//! a request to upgrade over [`UpgradedStream`] in memory. That stream completes when the real upgrade does, and then it is
//! the real stream with the permits. Must not know: which permits there are, how they are released.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use http::header::{CONNECTION, HeaderValue, UPGRADE};
use http::{Extensions, Request, Response, StatusCode};
use http_body::{Body, Frame};
use hyper::body::Incoming;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::upgrade::{OnUpgrade, Upgraded};
use tokio::runtime::Handle;

use crate::permit::RequestPermit;

/// The request that hyper reads from an [`UpgradedStream`]. Nobody else sees it.
const HANDSHAKE: &[u8] = b"GET / HTTP/1.1\r\nconnection: upgrade\r\nupgrade: permit\r\n\r\n";
/// How the head of hyper's response ends. It has no body.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Replaces the pending upgrade of a request by one whose stream keeps `permit`. Without a pending upgrade, or outside of
/// tokio's runtime, nothing changes: then the handler may keep the permit.
pub(crate) fn attach_permit(extensions: &mut Extensions, permit: &RequestPermit) {
    let Ok(runtime) = Handle::try_current() else {
        return;
    };
    let Some(upgrade) = extensions.remove::<OnUpgrade>() else {
        return;
    };
    let captured = Arc::new(Mutex::new(None));
    let mut handshake = Box::pin(handshake(upgrade, permit.clone(), Arc::clone(&captured)));
    // Its first poll reads the request out of memory, so that ours is there before the handler is called.
    let first = handshake
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()));
    if let Some(ours) = take(&captured) {
        extensions.insert(ours);
    }
    if first.is_pending() {
        // A task for each upgrade, none for other requests. It ends when the connection is upgraded, answers otherwise or dies.
        drop(runtime.spawn(handshake));
    }
}

/// Serves the request of [`HANDSHAKE`]. Its response is sent when the real upgrade is complete; if that fails, so does ours.
async fn handshake(
    upgrade: OnUpgrade,
    permit: RequestPermit,
    captured: Arc<Mutex<Option<OnUpgrade>>>,
) {
    let upgraded = Arc::new(Mutex::new(None));
    let stream = UpgradedStream {
        phase: StreamPhase::Handshake {
            unread: HANDSHAKE,
            upgraded: Arc::clone(&upgraded),
        },
        _permit: permit,
    };
    let upgrade = Mutex::new(Some(upgrade));
    let service = service_fn(move |mut request: Request<Incoming>| {
        let ours = request.extensions_mut().remove::<OnUpgrade>();
        *captured.lock().unwrap_or_else(PoisonError::into_inner) = ours;
        let (upgrade, upgraded) = (take(&upgrade), Arc::clone(&upgraded));
        async move {
            let Some(upgrade) = upgrade else {
                return Ok(Response::new(NoBody));
            };
            let stream = upgrade.await?;
            *upgraded.lock().unwrap_or_else(PoisonError::into_inner) = Some(stream);
            Ok::<_, hyper::Error>(switching_protocols())
        }
    });
    let connection = http1::Builder::new()
        .header_read_timeout(None)
        .serve_connection(stream, service)
        .with_upgrades();
    // An error means that the real connection was not upgraded. The handler learns it from our upgrade, which is cancelled.
    drop(connection.await);
}

fn switching_protocols() -> Response<NoBody> {
    let mut response = Response::new(NoBody);
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("permit"));
    response
}

fn take<T>(slot: &Mutex<Option<T>>) -> Option<T> {
    slot.lock().unwrap_or_else(PoisonError::into_inner).take()
}

/// An upgraded stream that keeps the permits of its request until it is dropped.
struct UpgradedStream {
    phase: StreamPhase,
    _permit: RequestPermit,
}

enum StreamPhase {
    /// hyper reads the request and writes the response, which nobody sees.
    Handshake {
        unread: &'static [u8],
        /// The real stream, once there is one.
        upgraded: Arc<Mutex<Option<Upgraded>>>,
    },
    /// Bytes go through.
    Open(Upgraded),
}

impl Read for UpgradedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        mut buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        match &mut self.phase {
            StreamPhase::Open(stream) => Pin::new(stream).poll_read(context, buffer),
            // The future of the service wakes hyper.
            StreamPhase::Handshake { unread: [], .. } => Poll::Pending,
            StreamPhase::Handshake { unread, .. } => {
                let (now, later) = unread.split_at(unread.len().min(buffer.remaining()));
                buffer.put_slice(now);
                *unread = later;
                Poll::Ready(Ok(()))
            }
        }
    }
}

impl Write for UpgradedStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        match &mut self.phase {
            StreamPhase::Open(stream) => Pin::new(stream).poll_write(context, bytes),
            StreamPhase::Handshake { upgraded, .. } => {
                if bytes.ends_with(END_OF_HEAD)
                    && let Some(stream) = take(upgraded)
                {
                    self.phase = StreamPhase::Open(stream);
                }
                Poll::Ready(Ok(bytes.len()))
            }
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.phase {
            StreamPhase::Open(stream) => Pin::new(stream).poll_flush(context),
            StreamPhase::Handshake { .. } => Poll::Ready(Ok(())),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.phase {
            StreamPhase::Open(stream) => Pin::new(stream).poll_shutdown(context),
            StreamPhase::Handshake { .. } => Poll::Ready(Ok(())),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.phase {
            StreamPhase::Open(stream) => stream.is_write_vectored(),
            StreamPhase::Handshake { .. } => false,
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match &mut self.phase {
            StreamPhase::Open(stream) => Pin::new(stream).poll_write_vectored(context, parts),
            StreamPhase::Handshake { .. } => {
                let first = parts.iter().find(|part| !part.is_empty());
                self.poll_write(context, first.map_or(&[][..], |part| part))
            }
        }
    }
}

/// The body of the response that nobody sees.
struct NoBody;

impl Body for NoBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        Poll::Ready(None)
    }

    fn is_end_stream(&self) -> bool {
        true
    }
}
