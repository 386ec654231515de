//! Sending as much as there is room for, without waiting for more.
//!
//! Must not know: what the bytes mean.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// What became of bytes that were to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendProgress {
    /// So many of them were taken.
    pub(crate) sent: usize,
    /// All were, and none is kept back on the way. Otherwise the task is woken when there is room.
    pub(crate) is_flushed: bool,
}

/// Sends as much as there is room for.
pub(crate) fn send_available<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> io::Result<SendProgress> {
    let mut count = 0_usize;
    while let Some(rest @ [_, ..]) = bytes.get(count..) {
        match Pin::new(&mut *stream).poll_write(context, rest)? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(more) => count = count.saturating_add(more),
            Poll::Pending => {
                let is_gone = false;
                return Ok(SendProgress {
                    sent: count,
                    is_flushed: is_gone,
                });
            }
        }
    }
    let is_gone = Pin::new(stream).poll_flush(context)?.is_ready();
    Ok(SendProgress {
        sent: count,
        is_flushed: is_gone,
    })
}
