//! Writes as many bytes as the socket accepts without waiting.
//!
//! Must not know: what the bytes mean.

use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::AsyncWrite;

/// The progress of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SendProgress {
    /// How many bytes were written.
    pub(crate) sent: usize,
    /// Whether all bytes were written and flushed. If not, the task is woken when the socket accepts more.
    pub(crate) is_flushed: bool,
}

/// Writes as many bytes as the socket accepts.
pub(crate) fn send_available<S: AsyncWrite + Unpin>(
    stream: &mut S,
    context: &mut Context<'_>,
    bytes: &[u8],
) -> io::Result<SendProgress> {
    let mut count = 0_usize;
    while let Some(unsent @ [_, ..]) = bytes.get(count..) {
        match Pin::new(&mut *stream).poll_write(context, unsent)? {
            Poll::Ready(0) => return Err(io::ErrorKind::WriteZero.into()),
            Poll::Ready(written) => count = count.saturating_add(written),
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
