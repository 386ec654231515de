//! The stream of a client between hyper and the socket: it ends at an ambiguous request, knows whether bytes are unsent and
//! whether the client has left, and yields bytes again that were read from it.
//!
//! So a connection without a request can give up hyper's buffers. Must not know: HTTP.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream, ReadBuf};

use super::framing_guard::FramingGuard;
use super::head_timer::RequestTracker;
use crate::listen::{PrefixedStream, Stream};

/// A stream that may know of its end before all bytes are read.
pub(super) trait ReadClosed {
    /// Whether the client has left. Bytes before the end may be unread.
    fn is_read_closed(&self) -> bool;
}

impl ReadClosed for PrefixedStream<Stream> {
    fn is_read_closed(&self) -> bool {
        Self::is_read_closed(self)
    }
}

/// A stream in memory, for tests: it does not know.
impl ReadClosed for DuplexStream {
    fn is_read_closed(&self) -> bool {
        false
    }
}

/// The stream of a client.
#[derive(Debug)]
pub(super) struct TrackedStream<S> {
    /// Bytes that are read before those of the stream.
    prefix: Bytes,
    tracker: RequestTracker,
    guard: FramingGuard,
    stream: S,
}

impl<S: AsyncRead + Unpin> TrackedStream<S> {
    pub(super) const fn new(stream: S, guard: FramingGuard, tracker: RequestTracker) -> Self {
        Self {
            prefix: Bytes::new(),
            tracker,
            guard,
            stream,
        }
    }

    /// Puts bytes back that were read. They are read again next.
    pub(super) fn unread(&mut self, bytes: Bytes) {
        self.prefix = match self.prefix.is_empty() {
            true => bytes,
            false => [bytes, self.prefix.clone()].concat().into(),
        };
    }

    /// The stream, if nothing was put back.
    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TrackedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if this.prefix.is_empty() {
            let stream = Pin::new(&mut this.stream);
            return this.guard.poll_read(stream, context, buffer);
        }
        let len = this.prefix.len().min(buffer.remaining());
        buffer.put_slice(this.prefix.get(..len).unwrap_or_default());
        this.prefix.advance(len);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + ReadClosed + Unpin> AsyncWrite for TrackedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.tracker.set_unsent(true);
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.tracker.set_unsent(true);
        Pin::new(&mut self.stream).poll_write_vectored(context, bytes)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    /// A writer flushes when it has written all that it has. hyper does so whenever it is polled.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tracker.has_to_look() && self.stream.is_read_closed() {
            self.tracker.set_gone();
        }
        ready!(Pin::new(&mut self.stream).poll_flush(context))?;
        self.tracker.set_unsent(false);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, duplex};
    use tokio::time::Instant;

    use super::*;
    use crate::gateway::head_timer::HeadTimer;
    use crate::gateway::websocket::ConnectionTunnel;

    fn timer() -> HeadTimer {
        HeadTimer::new(Duration::from_secs(1), Duration::ZERO, Instant::now())
    }

    fn guard() -> FramingGuard {
        FramingGuard::new(ConnectionTunnel::default())
    }

    #[tokio::test]
    async fn bytes_that_were_put_back_are_read_first() {
        let (mut client, stream) = duplex(100);
        let mut stream = TrackedStream::new(stream, guard(), timer().tracker());
        client.write_all(b"one two").await.unwrap();
        let mut buffer = [0; 3];
        stream.read_exact(&mut buffer).await.unwrap();
        assert_eq!(&buffer, b"one");
        stream.unread(Bytes::from_static(b"1"));
        drop(client);
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "1 two");
    }

    #[tokio::test]
    async fn bytes_are_unsent_until_the_writer_flushes() {
        let (_client, stream) = duplex(100);
        let timer = timer();
        let mut stream = TrackedStream::new(stream, guard(), timer.tracker());
        stream.write_all(b"one").await.unwrap();
        assert!(timer.has_unsent());
        stream.flush().await.unwrap();
        assert!(!timer.has_unsent());
    }
}
