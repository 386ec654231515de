//! Sends one response: the head and the first piece of the body in one write, then each piece when the one before is written.
//!
//! So a client that reads slowly holds one piece. Must not know: requests, where bodies come from.

use std::error::Error;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use hyper::body::Body;
use hyper::{HeaderMap, Response};
use tokio::io::AsyncWrite;
use tokio::time::Instant;

use super::response_head::{BodyFraming, BodyLen, HeadContext, write_head, write_trailers};

/// Room for most heads and short bodies.
const BUFFER_LEN: usize = 1_000;
/// A longer piece is not copied behind the head.
const COPIED_LEN: usize = 4 * 1_024;

/// A response that was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    KeepAlive,
    /// The connection has to be closed.
    Last,
}

/// A response on its way to the client.
#[derive(Debug)]
pub(super) struct ResponseSender<B> {
    /// The fields of the head, for trailers.
    headers: HeaderMap,
    body: B,
    framing: BodyFraming,
    is_last: bool,
    /// Bytes before the piece, and how many of them are written.
    buffer: Vec<u8>,
    written: usize,
    /// The piece of the body that is not copied into the buffer, and bytes behind it.
    piece: Bytes,
    tail: &'static [u8],
    /// Whether the first piece was asked for.
    has_begun: bool,
    /// Whether the body has nothing more to send.
    is_ended: bool,
}

impl<B: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Unpin> ResponseSender<B> {
    pub(super) fn new(response: Response<B>, is_head_request: bool, is_last: bool) -> Self {
        let (head, body) = response.into_parts();
        let mut buffer = Vec::with_capacity(BUFFER_LEN);
        let context = HeadContext {
            body: match (body.is_end_stream(), body.size_hint().exact()) {
                (true, _) | (_, Some(0)) => BodyLen::Empty,
                (false, Some(len)) => BodyLen::Known(len),
                (false, None) => BodyLen::Unknown,
            },
            is_head_request,
            is_last,
            now: Instant::now(),
        };
        let (framing, is_last) = write_head(head.status, &head.headers, context, &mut buffer);
        Self {
            headers: head.headers,
            body,
            framing,
            is_last,
            buffer,
            written: 0,
            piece: Bytes::new(),
            tail: b"",
            has_begun: false,
            is_ended: framing == BodyFraming::None,
        }
    }

    /// Writes what the socket takes. Ready when all is sent.
    pub(super) fn poll_send<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<Sent>> {
        // The first piece goes with the head.
        if !self.has_begun && !self.is_ended {
            self.has_begun = true;
            let _is_pending = self.poll_piece(context)?;
        }
        loop {
            ready!(self.poll_write(stream, context))?;
            if self.is_ended {
                ready!(Pin::new(&mut *stream).poll_flush(context))?;
                return Poll::Ready(Ok(match self.is_last {
                    true => Sent::Last,
                    false => Sent::KeepAlive,
                }));
            }
            if self.poll_piece(context)?.is_pending() {
                // What was written has to leave before more of the body arrives.
                let _is_flushed = Pin::new(&mut *stream).poll_flush(context)?;
                return Poll::Pending;
            }
        }
    }

    /// Takes the next piece of the body.
    fn poll_piece(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(context)) {
            Some(frame) => frame.map_err(io::Error::other)?,
            None => return Poll::Ready(self.end(None)),
        };
        let frame = match frame.into_data() {
            Ok(data) => {
                self.put(data)?;
                // The end goes with the last piece, unless trailers may follow.
                if self.body.is_end_stream() {
                    self.end(None)?;
                }
                return Poll::Ready(Ok(()));
            }
            Err(frame) => frame,
        };
        match frame.into_trailers() {
            Ok(trailers) => Poll::Ready(self.end(Some(&trailers))),
            Err(_unknown) => Poll::Ready(Ok(())),
        }
    }

    /// Frames a piece.
    fn put(&mut self, data: Bytes) -> io::Result<()> {
        if data.is_empty() {
            return Ok(());
        }
        match &mut self.framing {
            BodyFraming::None => return Ok(()),
            BodyFraming::Length(left) => {
                let len = u64::try_from(data.len()).unwrap_or(u64::MAX);
                *left = left.checked_sub(len).ok_or(io::ErrorKind::InvalidData)?;
            }
            BodyFraming::Chunked => {
                self.buffer
                    .extend_from_slice(format!("{:x}\r\n", data.len()).as_bytes());
                self.tail = b"\r\n";
            }
        }
        match data.len() <= COPIED_LEN {
            true => {
                self.buffer.extend_from_slice(&data);
                let tail = std::mem::take(&mut self.tail);
                self.buffer.extend_from_slice(tail);
            }
            false => self.piece = data,
        }
        Ok(())
    }

    /// Frames the end of the body.
    fn end(&mut self, trailers: Option<&HeaderMap>) -> io::Result<()> {
        match self.framing {
            BodyFraming::None | BodyFraming::Length(0) => {}
            BodyFraming::Length(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
            BodyFraming::Chunked if self.piece.is_empty() => {
                self.buffer.extend_from_slice(b"0\r\n");
                if let Some(trailers) = trailers {
                    write_trailers(&self.headers, trailers, &mut self.buffer);
                }
                self.buffer.extend_from_slice(b"\r\n");
            }
            // There are no trailers: they come when the piece before is written.
            BodyFraming::Chunked => self.tail = b"\r\n0\r\n\r\n",
        }
        self.is_ended = true;
        Ok(())
    }

    /// Writes buffer, piece and tail.
    fn poll_write<S: AsyncWrite + Unpin>(
        &mut self,
        stream: &mut S,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let buffer = self.buffer.get(self.written..).unwrap_or_default();
            let parts = [buffer, &self.piece, self.tail];
            let sent = if self.piece.is_empty() && self.tail.is_empty() {
                if buffer.is_empty() {
                    self.buffer.clear();
                    self.written = 0;
                    return Poll::Ready(Ok(()));
                }
                ready!(Pin::new(&mut *stream).poll_write(context, buffer))?
            } else if stream.is_write_vectored() {
                let parts = parts.map(IoSlice::new);
                ready!(Pin::new(&mut *stream).poll_write_vectored(context, &parts))?
            } else {
                let first = parts.into_iter().find(|part| !part.is_empty());
                ready!(Pin::new(&mut *stream).poll_write(context, first.unwrap_or_default()))?
            };
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.advance(sent);
        }
    }

    fn advance(&mut self, sent: usize) {
        let buffered = self.buffer.len().saturating_sub(self.written);
        self.written = self.written.saturating_add(sent.min(buffered));
        let sent = sent.saturating_sub(buffered);
        let of_piece = sent.min(self.piece.len());
        self.piece.advance(of_piece);
        let of_tail = sent.saturating_sub(of_piece);
        self.tail = self.tail.get(of_tail..).unwrap_or_default();
    }
}
