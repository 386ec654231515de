//! Why an upstream did not answer, and which status the client gets for it.
//!
//! Must not know: how responses are rendered.

use std::fmt;
use std::io;

use hyper::{Request, StatusCode};

use super::response_head::MalformedResponse;
use crate::gateway::request_body::{RequestBody, RequestBodyError};

/// What a client is told whose body is too long.
pub(in crate::gateway) const BODY_TOO_LONG: &str =
    "body: it is longer than `max_body_size` of the route";

/// An exchange without a response.
#[derive(Debug)]
pub(in crate::gateway) struct ExchangeError {
    pub(in crate::gateway) failure: FailureKind,
    /// The request, if it can be sent again as it is.
    pub(super) request: Option<Request<RequestBody>>,
    /// Whether something of it was sent.
    pub(super) is_sent: bool,
    /// Whether the connection was idle before. The upstream may have closed it just then, which is no failure of it.
    pub(super) is_stale: bool,
}

/// Why an upstream did not answer.
#[derive(Debug)]
pub(in crate::gateway) enum FailureKind {
    /// No connection.
    Connect(io::Error),
    /// Each address has as many connections as it may have.
    TooManyConnections,
    /// No response in time.
    Timeout,
    /// The connection ended, or the response is malformed. Or the client's own body ended early.
    Http(hyper::Error),
    /// The connection ended.
    Io(io::Error),
    /// The connection had ended before.
    Closed,
    /// The response is malformed.
    Malformed(MalformedResponse),
}

impl ExchangeError {
    pub(super) fn new(
        failure: FailureKind,
        request: Option<Request<RequestBody>>,
        is_sent: bool,
    ) -> Box<Self> {
        Box::new(Self {
            failure,
            request,
            is_sent,
            is_stale: false,
        })
    }

    /// Nothing was sent, if the request is there.
    pub(super) fn unsent(failure: FailureKind, request: Option<Request<RequestBody>>) -> Box<Self> {
        let is_sent = request.is_none();
        Self::new(failure, request, is_sent)
    }

    /// The request was sent, and is gone.
    pub(super) fn sent(failure: FailureKind) -> Box<Self> {
        Self::new(failure, None, true)
    }
}

impl FailureKind {
    /// Whether the client caused it. Then the upstream is not blamed.
    pub(super) fn is_by_client(&self) -> bool {
        self.body_error().is_some()
    }

    /// Whether the address failed: neither the client nor a bound of our own.
    pub(super) fn is_by_upstream(&self) -> bool {
        !self.is_by_client() && !matches!(self, Self::TooManyConnections)
    }

    fn body_error(&self) -> Option<&RequestBodyError> {
        let Self::Http(error) = self else { return None };
        let source = std::error::Error::source(error)?;
        source.downcast_ref()
    }

    /// The status for the client.
    pub(in crate::gateway) fn status(&self) -> StatusCode {
        match (self, self.body_error()) {
            (_, Some(RequestBodyError::Timeout)) => StatusCode::REQUEST_TIMEOUT,
            (_, Some(RequestBodyError::TooLong)) => StatusCode::PAYLOAD_TOO_LARGE,
            (_, Some(RequestBodyError::Client(_))) => StatusCode::BAD_REQUEST,
            (Self::TooManyConnections, _) | (_, Some(RequestBodyError::BuffersFull)) => {
                StatusCode::SERVICE_UNAVAILABLE
            }
            (Self::Timeout, _) => StatusCode::GATEWAY_TIMEOUT,
            (Self::Connect(error), _) if error.kind() == io::ErrorKind::TimedOut => {
                StatusCode::GATEWAY_TIMEOUT
            }
            _ => StatusCode::BAD_GATEWAY,
        }
    }

    /// What the client is told. It has no address and no detail of the upstream.
    pub(in crate::gateway) fn detail(&self) -> &'static str {
        match (self, self.body_error()) {
            (_, Some(RequestBodyError::Timeout)) => "body: it arrived too slowly",
            (_, Some(RequestBodyError::TooLong)) => BODY_TOO_LONG,
            (_, Some(RequestBodyError::Client(_))) => "body: it ended before it was complete",
            (_, Some(RequestBodyError::BuffersFull)) => "body: the server has no room to buffer it",
            (Self::Connect(_), _) => "the upstream cannot be reached",
            (Self::TooManyConnections, _) => "the upstream has too many requests in progress",
            (Self::Timeout, _) => "the upstream did not respond in time",
            (Self::Http(_) | Self::Io(_) | Self::Closed | Self::Malformed(_), _) => {
                "the upstream closed the connection or sent no valid response"
            }
        }
    }
}

impl fmt::Display for FailureKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => write!(f, "cannot connect: {error}"),
            Self::TooManyConnections => f.write_str("too many connections"),
            Self::Timeout => f.write_str("no response in time"),
            Self::Io(error) => write!(f, "the connection ended: {error}"),
            Self::Closed => f.write_str("the connection had ended"),
            Self::Malformed(reason) => write!(f, "the response is malformed: {reason}"),
            Self::Http(error) => match std::error::Error::source(error) {
                Some(source) => write!(f, "{error}: {source}"),
                None => write!(f, "{error}"),
            },
        }
    }
}
