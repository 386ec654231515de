//! One exchange over HTTP/1.1 for a request without a body: written and read here, without a channel, a copy or a task.
//!
//! Most requests are so. hyper's client would take the request over a channel, return the body over another, and need a copy of
//! the head for a retry. Must not know: pools, routes.

use std::future::{Future as _, poll_fn};
use std::io;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker, ready};

use bytes::{Bytes, BytesMut};
use hyper::body::Frame;
use hyper::{Method, StatusCode};
use tokio::io::{AsyncReadExt as _, AsyncWrite as _};
use tokio::time::Instant;

use super::body_decoder::BodyDecoder;
use super::failure::FailureKind;
use super::response_head::{MalformedResponse, ResponseHead, take_response_head};
use super::stream::UpstreamStream;
use crate::gateway::lazy_timer::LazyTimer;

/// Bytes that are read at a time: at least, at first and at most.
const MIN_READ_LEN: usize = 1_024;
const READ_LEN: usize = 4 * 1_024;
const MAX_READ_LEN: usize = 64 * 1_024;

/// A stream and what was read from it.
#[derive(Debug)]
pub(super) struct PlainExchange {
    stream: UpstreamStream,
    buffer: BytesMut,
    read_len: usize,
}

/// Why a body is incomplete.
#[derive(Debug)]
pub(in crate::gateway) enum BodyFailure {
    Malformed(MalformedResponse),
    Io(io::Error),
}

impl PlainExchange {
    pub(super) fn new(stream: UpstreamStream) -> Self {
        Self {
            stream,
            buffer: BytesMut::new(),
            read_len: READ_LEN,
        }
    }

    /// Whether the upstream has neither closed the connection nor sent bytes that nobody asked for.
    pub(super) fn is_idle(&mut self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        self.buffer.is_empty() && self.poll_read(&mut context).is_pending()
    }

    pub(super) fn into_stream(self) -> UpstreamStream {
        self.stream
    }

    /// Sends the head of a request. An error says whether bytes were sent.
    pub(super) async fn send(
        &mut self,
        head: &[u8],
        deadline: Instant,
        timer: &mut LazyTimer,
    ) -> Result<(), (FailureKind, bool)> {
        let mut sent = 0_usize;
        poll_fn(|context| {
            while let Some(rest @ [_, ..]) = head.get(sent..) {
                match Pin::new(&mut self.stream).poll_write(context, rest) {
                    Poll::Ready(Ok(0)) => {
                        let error = io::Error::from(io::ErrorKind::WriteZero);
                        return Poll::Ready(Err((FailureKind::Io(error), sent > 0)));
                    }
                    Poll::Ready(Ok(len)) => sent = sent.saturating_add(len),
                    Poll::Ready(Err(error)) => {
                        return Poll::Ready(Err((FailureKind::Io(error), sent > 0)));
                    }
                    Poll::Pending if timer.has_passed(deadline, context) => {
                        return Poll::Ready(Err((FailureKind::Timeout, true)));
                    }
                    Poll::Pending => return Poll::Pending,
                }
            }
            let flushed = ready!(Pin::new(&mut self.stream).poll_flush(context));
            Poll::Ready(flushed.map_err(|error| (FailureKind::Io(error), true)))
        })
        .await
    }

    /// Reads the head of the response. Heads of informational responses are skipped.
    pub(super) async fn receive_head(
        &mut self,
        method: &Method,
        deadline: Instant,
        timer: &mut LazyTimer,
    ) -> Result<ResponseHead, FailureKind> {
        poll_fn(|context| {
            loop {
                match take_response_head(&mut self.buffer, method) {
                    Err(malformed) => return Poll::Ready(Err(FailureKind::Malformed(malformed))),
                    Ok(Some(head)) if head.status == StatusCode::SWITCHING_PROTOCOLS => {
                        let malformed = MalformedResponse("nobody asked for an upgrade");
                        return Poll::Ready(Err(FailureKind::Malformed(malformed)));
                    }
                    Ok(Some(head)) if head.status.is_informational() => {}
                    Ok(Some(head)) => return Poll::Ready(Ok(head)),
                    Ok(None) => match self.poll_read(context) {
                        Poll::Ready(Ok(_)) => {}
                        Poll::Ready(Err(error)) => {
                            return Poll::Ready(Err(FailureKind::Io(error)));
                        }
                        Poll::Pending if timer.has_passed(deadline, context) => {
                            return Poll::Ready(Err(FailureKind::Timeout));
                        }
                        Poll::Pending => return Poll::Pending,
                    },
                }
            }
        })
        .await
    }

    /// Reads the next part of a body. `None` when it is complete.
    pub(super) fn poll_body(
        &mut self,
        decoder: &mut BodyDecoder,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        loop {
            match decoder.decode(&mut self.buffer) {
                Err(malformed) => return Poll::Ready(Some(Err(BodyFailure::Malformed(malformed)))),
                Ok(Some(frame)) => return Poll::Ready(Some(Ok(frame))),
                Ok(None) if decoder.is_complete() => return Poll::Ready(None),
                Ok(None) => match ready!(self.poll_read(context)) {
                    Ok(_) => {}
                    Err(error)
                        if *decoder == BodyDecoder::Close
                            && error.kind() == io::ErrorKind::UnexpectedEof =>
                    {
                        *decoder = BodyDecoder::Complete;
                        return Poll::Ready(None);
                    }
                    Err(error) => return Poll::Ready(Some(Err(BodyFailure::Io(error)))),
                },
            }
        }
    }

    /// Reads more bytes into the buffer. The end of the stream is an error.
    fn poll_read(&mut self, context: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut room = self.buffer.capacity().saturating_sub(self.buffer.len());
        if room < MIN_READ_LEN {
            self.buffer.reserve(self.read_len);
            room = self.buffer.capacity().saturating_sub(self.buffer.len());
        }
        let read = pin!(self.stream.read_buf(&mut self.buffer));
        match ready!(read.poll(context))? {
            0 => Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into())),
            len => {
                // A long body is read in larger parts.
                if len >= room {
                    self.read_len = self.read_len.saturating_mul(2).min(MAX_READ_LEN);
                }
                Poll::Ready(Ok(len))
            }
        }
    }
}
