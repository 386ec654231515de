//! A socket in memory: what a client has sent is there when the server reads, and everything that the server writes is taken.
//!
//! Must not know: protocols, what is measured.

use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

/// Both ends of the socket.
#[derive(Clone, Debug, Default)]
pub(super) struct InMemorySocket(Arc<Mutex<SocketBuffers>>);

#[derive(Debug, Default)]
pub(super) struct SocketBuffers {
    /// What the client has sent, and how much of it the server has read.
    pub(super) sent: Vec<u8>,
    read: usize,
    /// What the server has written.
    pub(super) received: Vec<u8>,
}

impl InMemorySocket {
    /// The buffers. No waker is called: the caller polls the server.
    pub(super) fn buffers(&self) -> MutexGuard<'_, SocketBuffers> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the server read this much again, and forgets what it wrote.
    pub(super) fn send_again(&self) {
        let mut buffers = self.buffers();
        buffers.read = 0;
        buffers.received.clear();
    }

    /// Has the server read these bytes, and forgets what it wrote.
    pub(super) fn send(&self, bytes: &[u8]) {
        let mut buffers = self.buffers();
        buffers.sent.clear();
        buffers.sent.extend_from_slice(bytes);
        drop(buffers);
        self.send_again();
    }
}

impl AsyncRead for InMemorySocket {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        room: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let mut buffers = self.buffers();
        let unread = buffers.sent.get(buffers.read..).unwrap_or_default();
        if unread.is_empty() {
            return Poll::Pending;
        }
        let len = unread.len().min(room.remaining());
        room.put_slice(unread.get(..len).unwrap_or_default());
        buffers.read += len;
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for InMemorySocket {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.buffers().received.extend_from_slice(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
