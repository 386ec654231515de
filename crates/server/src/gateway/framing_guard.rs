//! Ends what is read from a client at the first ambiguous HTTP/1.1 request, so that hyper answers it with 400.
//!
//! The line end of the refused line becomes NUL, which no parser takes. After it the stream has the end of a head, because
//! hyper parses a head that arrives in pieces only when it has its end, and then an error. A tunnel is not looked at.
//! Must not know: what makes a request ambiguous.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, ReadBuf};

use super::request_framing::RequestFraming;
use super::websocket::ConnectionTunnel;

/// Reads a stream without ambiguous requests.
#[derive(Debug)]
pub(super) struct FramingGuard {
    framing: RequestFraming,
    tunnel: ConnectionTunnel,
    /// What is still read after a refused request.
    ending: &'static [u8],
}

impl FramingGuard {
    pub(super) const fn new(tunnel: ConnectionTunnel) -> Self {
        Self {
            framing: RequestFraming::new(),
            tunnel,
            ending: b"\r\n\r\n",
        }
    }

    pub(super) fn poll_read(
        &mut self,
        stream: Pin<&mut impl AsyncRead>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.framing.is_refused() {
            let len = self.ending.len().min(buffer.remaining());
            let (piece, rest) = self.ending.split_at_checked(len).unwrap_or_default();
            if piece.is_empty() {
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            buffer.put_slice(piece);
            self.ending = rest;
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        ready!(stream.poll_read(context, buffer))?;
        if self.tunnel.has_started() {
            return Poll::Ready(Ok(()));
        }
        let read = buffer.filled().get(before..).unwrap_or_default();
        if let Some(position) = self.framing.scan(read) {
            let position = before.saturating_add(position);
            if let Some(end) = buffer.filled_mut().get_mut(position) {
                *end = 0;
            }
            buffer.set_filled(position.saturating_add(1));
        }
        Poll::Ready(Ok(()))
    }
}
