//! A stream of a client that ends at the first ambiguous HTTP/1.1 request, so that hyper answers it with 400.
//!
//! The line end of the refused line becomes NUL, which no parser takes. After it the stream has the end of a head, because
//! hyper parses a head that arrives in pieces only when it has its end, and then an error. A tunnel is not looked at.
//! Must not know: what makes a request ambiguous.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::request_framing::RequestFraming;
use super::websocket::ConnectionTunnel;

/// A stream without ambiguous requests.
#[derive(Debug)]
pub(super) struct FramingGuard<S> {
    stream: S,
    framing: RequestFraming,
    tunnel: ConnectionTunnel,
    /// What is still read after a refused request.
    ending: &'static [u8],
}

impl<S> FramingGuard<S> {
    pub(super) const fn new(stream: S, tunnel: ConnectionTunnel) -> Self {
        Self {
            stream,
            framing: RequestFraming::new(),
            tunnel,
            ending: b"\r\n\r\n",
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for FramingGuard<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.framing.is_refused() {
            let len = this.ending.len().min(buffer.remaining());
            let (piece, rest) = this.ending.split_at_checked(len).unwrap_or_default();
            if piece.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            buffer.put_slice(piece);
            this.ending = rest;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(context, buffer))?;
        if this.tunnel.has_started() {
            return Poll::Ready(Ok(()));
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some(position) = this.framing.scan(read) {
            let position = before.saturating_add(position);
            if let Some(end) = buffer.filled_mut().get_mut(position) {
                *end = 0;
            }
            buffer.set_filled(position.saturating_add(1));
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for FramingGuard<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
