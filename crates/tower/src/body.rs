//! The body of a response, which ends a request: permits travel with it.
//!
//! Must not know: how requests are decided, what is settled.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf as _, Bytes};
use http_body::{Body, Frame, SizeHint};
use pin_project_lite::pin_project;
use tollgate_service::{Clock, OpenRequest, SystemClock};

pin_project! {
    /// The body of a response: that of the inner service, or the problem details of a refusal.
    ///
    /// Permits and costs by the length of the body are settled when it ends or is dropped, whichever comes first.
    #[derive(Debug)]
    pub struct ResponseBody<B, C: Clock = SystemClock> {
        #[pin]
        source: Source<B>,
        request: Option<Box<OpenRequest<C>>>,
    }
}

pin_project! {
    #[project = SourceProjection]
    #[derive(Debug)]
    enum Source<B> {
        Inner { #[pin] body: B },
        Refusal { body: Bytes },
    }
}

impl<B: Body, C: Clock> ResponseBody<B, C> {
    /// The body of the inner service. `request` ends with it.
    pub(crate) fn inner(body: B, request: Option<Box<OpenRequest<C>>>) -> Self {
        Self {
            // Nobody polls a body that is empty from the start.
            request: request.filter(|_| !body.is_end_stream()),
            source: Source::Inner { body },
        }
    }

    /// The body of a refusal.
    pub(crate) const fn refusal(body: Bytes) -> Self {
        Self {
            source: Source::Refusal { body },
            request: None,
        }
    }
}

impl<B: Body<Data = Bytes>, C: Clock> Body for ResponseBody<B, C> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = self.project();
        let mut body = match this.source.project() {
            SourceProjection::Inner { body } => body,
            SourceProjection::Refusal { body } => {
                let body = std::mem::take(body);
                return Poll::Ready((!body.is_empty()).then(|| Ok(Frame::data(body))));
            }
        };
        let frame = ready!(body.as_mut().poll_frame(context));
        if let (Some(request), Some(Ok(frame))) = (this.request.as_mut(), &frame)
            && let Some(data) = frame.data_ref()
        {
            request.add_body_bytes(data.remaining());
        }
        // The last frame releases permits before the client can see the end, so its next request finds them free.
        if !matches!(frame, Some(Ok(_))) || body.is_end_stream() {
            *this.request = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        match &self.source {
            Source::Inner { body } => body.is_end_stream(),
            Source::Refusal { body } => body.is_empty(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.source {
            Source::Inner { body } => body.size_hint(),
            Source::Refusal { body } => {
                SizeHint::with_exact(u64::try_from(body.len()).unwrap_or(u64::MAX))
            }
        }
    }
}
