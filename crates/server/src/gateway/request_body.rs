//! The body of a request on its way to the upstream: streamed, never buffered, and ended if the client stops sending.
//!
//! Must not know: connections, routes.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::head_timer::OpenExchange;
use super::idle_timer::IdleTimer;

/// The body of a request to an upstream.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// No body.
    Empty,
    /// What the client sends.
    Client(ClientBody),
}

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientBody {
    incoming: Incoming,
    idle: IdleTimer,
    /// The bytes that may still arrive.
    left: u64,
    /// Dropped after the body, so that the client's connection is busy until then.
    _exchange: Option<OpenExchange>,
}

/// Why the body of a request is incomplete.
#[derive(Debug)]
pub(super) enum RequestBodyError {
    /// The client sent nothing for too long.
    Timeout,
    /// The body is longer than the route permits.
    TooLong,
    /// The client disconnected, or its body is malformed.
    Client(hyper::Error),
}

impl RequestBody {
    /// A body of at most this many bytes. One that declares more is an error at once.
    pub(super) fn new(
        incoming: Incoming,
        idle: IdleTimer,
        max_len: Option<u64>,
        exchange: Option<OpenExchange>,
    ) -> Result<Self, RequestBodyError> {
        let left = max_len.unwrap_or(u64::MAX);
        match incoming.is_end_stream() {
            true => Ok(Self::Empty),
            false if incoming.size_hint().lower() > left => Err(RequestBodyError::TooLong),
            false => Ok(Self::Client(ClientBody {
                incoming,
                idle,
                left,
                _exchange: exchange,
            })),
        }
    }
}

impl Body for RequestBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        let Self::Client(body) = self.get_mut() else {
            return Poll::Ready(None);
        };
        match Pin::new(&mut body.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                body.idle.record_progress();
                let len = frame.data_ref().map_or(0, Bytes::len) as u64;
                Poll::Ready(Some(match body.left.checked_sub(len) {
                    Some(left) => {
                        body.left = left;
                        Ok(frame)
                    }
                    None => Err(RequestBodyError::TooLong),
                }))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(RequestBodyError::Client(error))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if body.idle.has_expired(context) => {
                Poll::Ready(Some(Err(RequestBodyError::Timeout)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body) => body.incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body) => body.incoming.size_hint(),
        }
    }
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the client stopped sending its request"),
            Self::TooLong => f.write_str("the client's request is too long"),
            Self::Client(error) => write!(f, "the client's request ended early: {error}"),
        }
    }
}

impl std::error::Error for RequestBodyError {}
