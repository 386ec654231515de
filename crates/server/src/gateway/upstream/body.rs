//! The body of a response on its way to the client: streamed as it arrives, and the owner of its connection.
//!
//! When it is complete, the connection goes back to its pool. When it is dropped earlier, the connection closes. Must not
//! know: routes, clients.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::body_decoder::BodyDecoder;
use super::endpoint::InFlight;
use super::http1::Http1Connection;
use super::plain_exchange::BodyFailure;
use crate::listen::{BuffersFull, TransferTimer};

/// The body of a response of an upstream.
#[derive(Debug)]
pub(in crate::gateway) struct UpstreamBody {
    source: BodySource,
    /// The HTTP/1.1 connection, which this body drives. An HTTP/2 connection has a task.
    connection: Option<Box<Http1Connection>>,
    /// Until the body is complete.
    in_flight: Option<InFlight>,
    idle: TransferTimer,
}

/// Where the parts of a body come from.
#[derive(Debug)]
pub(super) enum BodySource {
    /// hyper, which reads the connection.
    Hyper(Incoming),
    /// The bytes of the connection.
    Plain(BodyDecoder),
}

/// Why the body of a response is incomplete.
#[derive(Debug)]
pub(in crate::gateway) enum UpstreamBodyError {
    /// The upstream sent nothing for too long, or the exchange took too long.
    Timeout,
    /// The connection ended, or the body is malformed.
    Upstream(hyper::Error),
    /// The byte budget of the process had no room for too long.
    BuffersFull,
    /// The same in an exchange without hyper.
    Plain(BodyFailure),
}

impl UpstreamBody {
    pub(super) fn new(
        source: BodySource,
        connection: Option<Box<Http1Connection>>,
        in_flight: InFlight,
        idle: TransferTimer,
    ) -> Self {
        Self {
            source,
            connection,
            in_flight: Some(in_flight),
            idle,
        }
    }

    /// Returns the connection to its pool if the body is already complete.
    pub(super) fn release_if_complete(&mut self) {
        if self.is_end_stream() {
            self.release();
        }
    }

    /// Takes the connection of a response with status 101.
    pub(in crate::gateway) fn take_connection(&mut self) -> Option<Box<Http1Connection>> {
        self.connection.take()
    }

    fn release(&mut self) {
        let in_flight = self.in_flight.take();
        if let (Some(connection), Some(in_flight)) = (self.connection.take(), in_flight) {
            in_flight.endpoint().put_idle(connection);
        }
    }

    fn poll_source(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        match (&mut self.source, &mut self.connection) {
            (BodySource::Plain(decoder), Some(connection)) => {
                let frame = connection.poll_plain_body(decoder, context);
                frame.map(|frame| frame.map(|frame| frame.map_err(UpstreamBodyError::Plain)))
            }
            // It was complete, and its connection is in the pool.
            (BodySource::Plain(_), None) => Poll::Ready(None),
            (BodySource::Hyper(incoming), connection) => {
                let frame = poll_incoming(incoming, connection.as_deref_mut(), context);
                frame.map(|frame| frame.map(|frame| frame.map_err(UpstreamBodyError::Upstream)))
            }
        }
    }
}

fn poll_incoming(
    incoming: &mut Incoming,
    connection: Option<&mut Http1Connection>,
    context: &mut Context<'_>,
) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
    let frame = Pin::new(&mut *incoming).poll_frame(context);
    match (&frame, connection) {
        // The connection reads only what the body asks for, so it is driven after the body has asked.
        (Poll::Pending, Some(connection)) => {
            let ended = connection.poll_hyper(context);
            match Pin::new(incoming).poll_frame(context) {
                Poll::Pending => match ended {
                    Some(Err(error)) => Poll::Ready(Some(Err(error))),
                    _ => Poll::Pending,
                },
                ready => ready,
            }
        }
        _ => frame,
    }
}

impl Body for UpstreamBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        let this = self.get_mut();
        match this.poll_source(context) {
            Poll::Ready(Some(Ok(frame))) => {
                this.idle
                    .record_progress(frame.data_ref().map_or(0, Bytes::len));
                this.release_if_complete();
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                this.connection = None;
                Poll::Ready(Some(Err(error)))
            }
            Poll::Ready(None) => {
                this.release();
                Poll::Ready(None)
            }
            Poll::Pending if this.idle.has_expired(context) => {
                this.connection = None;
                Poll::Ready(Some(Err(UpstreamBodyError::Timeout)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            BodySource::Hyper(incoming) => incoming.is_end_stream(),
            BodySource::Plain(decoder) => decoder.is_complete(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            BodySource::Hyper(incoming) => incoming.size_hint(),
            BodySource::Plain(decoder) => {
                let remaining = decoder.remaining().map(SizeHint::with_exact);
                remaining.unwrap_or_default()
            }
        }
    }
}

impl From<BuffersFull> for UpstreamBodyError {
    fn from(_full: BuffersFull) -> Self {
        Self::BuffersFull
    }
}

impl fmt::Display for UpstreamBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the upstream stopped sending its response"),
            Self::BuffersFull => f.write_str("no room to buffer the response"),
            Self::Upstream(error) => write!(f, "the upstream's response ended early: {error}"),
            Self::Plain(BodyFailure::Io(error)) => {
                write!(f, "the upstream's response ended early: {error}")
            }
            Self::Plain(BodyFailure::Malformed(reason)) => {
                write!(f, "the upstream's response is malformed: {reason}")
            }
        }
    }
}

impl std::error::Error for UpstreamBodyError {}
