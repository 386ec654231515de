//! The body of a request on its way to the upstream: streamed, never buffered whole, and ended if the client stops sending.
//!
//! Must not know: connections, routes.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming, SizeHint};

use super::budgeted_body::{BudgetedBody, is_long};
use super::head_timer::OpenExchange;
use super::upload_progress::UploadProgress;
use crate::listen::{BufferBudget, BuffersFull, TransferTimer};

/// The body of a request to an upstream.
#[derive(Debug)]
pub(super) enum RequestBody {
    /// No body.
    Empty,
    /// What the client sends. Boxed, because most requests have none, and each is moved often.
    Client(Box<ClientBody>, Arc<UploadProgress>),
    /// The same, if it is long or of unknown length.
    Budgeted(Box<BudgetedBody<ClientBody>>, Arc<UploadProgress>),
}

/// What a client sends.
#[derive(Debug)]
pub(super) struct ClientBody {
    incoming: Incoming,
    timer: TransferTimer,
    /// The bytes that may still arrive.
    left: u64,
    /// Dropped after the body, so that the client's connection is busy until then.
    _exchange: Option<OpenExchange>,
}

/// Why the body of a request is incomplete.
#[derive(Debug)]
pub(super) enum RequestBodyError {
    /// The client sent nothing, or too little, for too long.
    Timeout,
    /// The body is longer than the route permits.
    TooLong,
    /// The byte budget of the process had no room for too long.
    BuffersFull,
    /// The client disconnected, or its body is malformed.
    Client(hyper::Error),
}

impl RequestBody {
    /// A body of at most this many bytes. One that declares more is an error at once.
    pub(super) fn new(
        incoming: Incoming,
        timer: TransferTimer,
        max_len: Option<u64>,
        exchange: Option<OpenExchange>,
        budget: &Arc<BufferBudget>,
    ) -> Result<Self, RequestBodyError> {
        let left = max_len.unwrap_or(u64::MAX);
        if incoming.is_end_stream() {
            return Ok(Self::Empty);
        }
        if incoming.size_hint().lower() > left {
            return Err(RequestBodyError::TooLong);
        }
        let body = ClientBody {
            incoming,
            timer,
            left,
            _exchange: exchange,
        };
        let progress = Arc::new(UploadProgress::new());
        Ok(match is_long(&body) {
            true => Self::Budgeted(Box::new(BudgetedBody::new(body, budget)), progress),
            false => Self::Client(Box::new(body), progress),
        })
    }

    /// How far the body is on its way to the upstream. `None` if there is no body.
    pub(super) const fn progress(&self) -> Option<&Arc<UploadProgress>> {
        match self {
            Self::Empty => None,
            Self::Client(_, progress) | Self::Budgeted(_, progress) => Some(progress),
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
        let this = self.get_mut();
        let frame = match this {
            Self::Empty => return Poll::Ready(None),
            Self::Client(body, _) => Pin::new(body.as_mut()).poll_frame(context),
            Self::Budgeted(body, _) => Pin::new(body.as_mut()).poll_frame(context),
        };
        if let Some(progress) = this.progress() {
            match frame {
                Poll::Ready(_) => progress.record_taken(),
                Poll::Pending => progress.record_waiting(),
            }
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Empty => true,
            Self::Client(body, _) => body.is_end_stream(),
            Self::Budgeted(body, _) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Empty => SizeHint::with_exact(0),
            Self::Client(body, _) => body.size_hint(),
            Self::Budgeted(body, _) => body.size_hint(),
        }
    }
}

impl Body for ClientBody {
    type Data = Bytes;
    type Error = RequestBodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, RequestBodyError>>> {
        match Pin::new(&mut self.incoming).poll_frame(context) {
            Poll::Ready(Some(Ok(frame))) => {
                let len = frame.data_ref().map_or(0, Bytes::len);
                self.timer.record_progress(len);
                Poll::Ready(Some(match self.left.checked_sub(len as u64) {
                    Some(left) => {
                        self.left = left;
                        Ok(frame)
                    }
                    None => Err(RequestBodyError::TooLong),
                }))
            }
            Poll::Ready(Some(Err(error))) => {
                Poll::Ready(Some(Err(RequestBodyError::Client(error))))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending if self.timer.has_expired(context) => {
                Poll::Ready(Some(Err(RequestBodyError::Timeout)))
            }
            Poll::Pending => Poll::Pending,
        }
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

impl From<BuffersFull> for RequestBodyError {
    fn from(_full: BuffersFull) -> Self {
        Self::BuffersFull
    }
}

impl fmt::Display for RequestBodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str("the client sent its request too slowly"),
            Self::TooLong => f.write_str("the client's request is too long"),
            Self::BuffersFull => f.write_str("no room to buffer the client's request"),
            Self::Client(error) => write!(f, "the client's request ended early: {error}"),
        }
    }
}

impl std::error::Error for RequestBodyError {}
