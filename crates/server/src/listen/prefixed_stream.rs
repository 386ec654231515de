//! A stream that yields some bytes again before it reads on: bytes that another parser has already taken from the socket.
//!
//! Must not know: what the bytes mean.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::buffer_budget::BufferReservation;
use super::stream::Stream;

/// A stream with a prefix.
#[derive(Debug)]
pub(crate) struct PrefixedStream<S> {
    prefix: Vec<u8>,
    position: usize,
    /// The reservation of the prefix, until it is read.
    reserved: Option<BufferReservation>,
    stream: S,
}

impl<S> PrefixedStream<S> {
    pub(crate) const fn new(prefix: Vec<u8>, reserved: BufferReservation, stream: S) -> Self {
        Self {
            prefix,
            position: 0,
            reserved: Some(reserved),
            stream,
        }
    }

    /// Puts bytes back that were read. They are read again next, and are not counted in the byte budget.
    pub(crate) fn unread(&mut self, bytes: &[u8]) {
        let rest = self.prefix.get(self.position..).unwrap_or_default();
        self.prefix = [bytes, rest].concat();
        self.position = 0;
    }
}

impl PrefixedStream<Stream> {
    /// Whether the client has closed or reset the connection. Bytes before the end may be unread.
    pub(crate) fn is_read_closed(&self) -> bool {
        self.stream.is_read_closed()
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for PrefixedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        if let Some(prefix @ [_, ..]) = this.prefix.get(this.position..) {
            let chunk = prefix.get(..buffer.remaining()).unwrap_or(prefix);
            buffer.put_slice(chunk);
            this.position = this.position.saturating_add(chunk.len());
            if this.position == this.prefix.len() {
                (this.prefix, this.position) = (Vec::new(), 0);
                this.reserved = None;
            }
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for PrefixedStream<S> {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::listen::{BufferBudget, BufferPriority};
    use std::sync::Arc;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::{TcpListener, TcpStream};

    #[tokio::test]
    async fn the_prefix_is_read_first_and_then_the_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap());
        let (client, accepted) = tokio::join!(client, listener.accept());
        let mut client = client.unwrap();
        client.write_all(b" and later").await.unwrap();
        drop(client);
        let stream = Stream::tcp(accepted.unwrap().0, Duration::from_secs(1));
        let budget = Arc::new(BufferBudget::new(100));
        let reserved = BufferReservation::new(Arc::clone(&budget), BufferPriority::Normal);
        let mut reserved = reserved.with_uncounted_len(0);
        reserved.resize(8).unwrap();
        let prefix = b"at first".to_vec();
        let mut prefixed_stream = PrefixedStream::new(prefix, reserved, stream);
        let mut first = [0; 3];
        prefixed_stream.read_exact(&mut first).await.unwrap();
        assert_eq!(budget.used(), 8);
        prefixed_stream.unread(b"once more ");
        let mut rest = String::new();
        prefixed_stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(
            (&first, rest.as_str()),
            (b"at ", "once more first and later")
        );
        assert_eq!(budget.used(), 0, "the prefix is freed");
    }
}
