//! The body of a response to a client: of the upstream, or our own problem details.
//!
//! Must not know: connections, limits.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::{Response, StatusCode};
use tollgate_http::ProblemDetails;

use super::budgeted_body::{BudgetedBody, is_long};
use super::upstream::{UpstreamBody, UpstreamBodyError};
use crate::listen::BufferBudget;

/// The body of a response to a client.
#[derive(Debug)]
pub(super) enum GatewayBody {
    /// Our own, until it is sent.
    Own(Bytes),
    Upstream(UpstreamBody),
    /// One that is long or of unknown length.
    Budgeted(Box<BudgetedBody<UpstreamBody>>),
}

impl GatewayBody {
    pub(super) const fn empty() -> Self {
        Self::Own(Bytes::new())
    }

    /// The body of an upstream, which is counted in the budget if it is long.
    pub(super) fn upstream(body: UpstreamBody, budget: &Arc<BufferBudget>) -> Self {
        match is_long(&body) {
            true => Self::Budgeted(Box::new(BudgetedBody::new(body, budget))),
            false => Self::Upstream(body),
        }
    }
}

/// A response of the gateway itself.
pub(super) fn problem(status: StatusCode, detail: &str) -> Response<GatewayBody> {
    let title = status.canonical_reason().unwrap_or("Error");
    let body = ProblemDetails::new(status.as_u16(), title, detail).to_json();
    let mut response = Response::new(GatewayBody::Own(body.into()));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(
        CONTENT_TYPE,
        HeaderValue::from_static(tollgate_http::CONTENT_TYPE),
    );
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

impl Body for GatewayBody {
    type Data = Bytes;
    type Error = UpstreamBodyError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        match self.get_mut() {
            Self::Own(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            Self::Upstream(body) => Pin::new(body).poll_frame(context),
            Self::Budgeted(body) => Pin::new(body.as_mut()).poll_frame(context),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Own(bytes) => bytes.is_empty(),
            Self::Upstream(body) => body.is_end_stream(),
            Self::Budgeted(body) => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Own(bytes) => {
                SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX))
            }
            Self::Upstream(body) => body.size_hint(),
            Self::Budgeted(body) => body.size_hint(),
        }
    }
}
