//! The future of a response.
//!
//! Must not know: how requests are decided, what is settled.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response, StatusCode};
use http_body::Body;
use pin_project_lite::pin_project;
use tollgate_service::{Clock, OpenRequest, SystemClock};

use crate::body::ResponseBody;
use crate::decision_info::DecisionInfo;
use crate::layer_state::LayerAdmission;
use crate::permit::{RequestPermit, is_connect, is_upgrade};
use crate::response_fields::ResponseFields;
use crate::upgrade::attach_permit;

/// The status of a request whose inner service failed, for policies that count or refund statuses.
const INNER_ERROR: u16 = 502;

type BoxedResponse<B, E, C> =
    Pin<Box<dyn Future<Output = Result<Response<ResponseBody<B, C>>, E>> + Send>>;

pin_project! {
    /// The future of a [`TollgateService`](crate::TollgateService).
    ///
    /// Dropping it is safe at any time: a request that waits gives its place back, one that runs releases its permits.
    #[must_use = "futures do nothing unless polled"]
    pub struct ResponseFuture<F, B, E, C: Clock = SystemClock> {
        #[pin]
        state: State<F, B, E, C>,
    }
}

pin_project! {
    #[project = StateProjection]
    enum State<F, B, E, C: Clock> {
        Refused { response: Option<Box<Response<Bytes>>> },
        Running { #[pin] future: F, running: Option<RunningRequest<C>> },
        Boxed { future: BoxedResponse<B, E, C> },
    }
}

impl<F, B, E, C: Clock> ResponseFuture<F, B, E, C> {
    pub(crate) const fn refused(response: Box<Response<Bytes>>) -> Self {
        Self {
            state: State::Refused {
                response: Some(response),
            },
        }
    }

    #[inline(always)]
    pub(crate) const fn running(future: F, running: RunningRequest<C>) -> Self {
        Self {
            state: State::Running {
                future,
                running: Some(running),
            },
        }
    }

    pub(crate) fn boxed(
        future: impl Future<Output = Result<Response<ResponseBody<B, C>>, E>> + Send + 'static,
    ) -> Self {
        Self {
            state: State::Boxed {
                future: Box::pin(future),
            },
        }
    }
}

impl<F, B, E, C> Future for ResponseFuture<F, B, E, C>
where
    F: Future<Output = Result<Response<B>, E>>,
    B: Body<Data = Bytes>,
    C: Clock + 'static,
{
    type Output = Result<Response<ResponseBody<B, C>>, E>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match self.project().state.project() {
            StateProjection::Refused { response } => match response.take() {
                Some(response) => Poll::Ready(Ok(response.map(ResponseBody::refusal))),
                // Polled after it was ready.
                None => Poll::Pending,
            },
            StateProjection::Boxed { future } => future.as_mut().poll(context),
            StateProjection::Running { future, running } => {
                let called = ready!(future.poll(context));
                match running.take() {
                    Some(running) => Poll::Ready(running.finish(called)),
                    None => Poll::Pending,
                }
            }
        }
    }
}

impl<F, B, E, C: Clock> fmt::Debug for ResponseFuture<F, B, E, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ResponseFuture").finish_non_exhaustive()
    }
}

/// A request whose inner service is at work.
pub(crate) struct RunningRequest<C: Clock> {
    request: Option<Box<OpenRequest<C>>>,
    fields: ResponseFields,
    info: Option<Box<DecisionInfo>>,
    /// The handle that the handler may keep, if the request has permits.
    permit: Option<RequestPermit>,
    is_connect: bool,
}

impl<C: Clock + 'static> RunningRequest<C> {
    /// Begins the work: call the inner service next.
    #[inline(always)]
    pub(crate) fn start<T>(admission: LayerAdmission<C>, request: &mut Request<T>) -> Self {
        let LayerAdmission {
            request: mut open,
            fields,
            info,
            ..
        } = admission;
        let mut permit = None;
        if let Some(open) = &mut open {
            open.start();
            if open.has_permits() {
                let handle = RequestPermit::default();
                attach_permit(request.extensions_mut(), &handle);
                request.extensions_mut().insert(handle.clone());
                permit = Some(handle);
            }
        }
        Self {
            request: open,
            fields,
            info,
            permit,
            is_connect: is_connect(request.method()),
        }
    }

    /// Settles what the head of the response decides, and adds the fields.
    pub(crate) fn finish<B: Body, E>(
        self,
        called: Result<Response<B>, E>,
    ) -> Result<Response<ResponseBody<B, C>>, E> {
        let mut response = match called {
            Ok(response) => response,
            Err(error) => {
                let open = self.request.and_then(|open| open.respond(&INNER_ERROR));
                drop(open);
                return Err(error);
            }
        };
        let head = ResponseHead {
            status: response.status(),
            headers: response.headers(),
        };
        let mut open = self.request.and_then(|open| open.respond(&head));
        if is_upgrade(self.is_connect, response.status())
            && let (Some(permit), Some(request)) = (self.permit, open.take())
        {
            open = permit.hand_over(request);
        }
        self.fields.merge_into(response.headers_mut());
        if let Some(info) = self.info {
            response.extensions_mut().insert(*info);
        }
        Ok(response.map(|body| ResponseBody::inner(body, open)))
    }
}

/// The head of a response, as limits see it.
struct ResponseHead<'a> {
    status: StatusCode,
    headers: &'a HeaderMap,
}

impl tollgate_service::Response for ResponseHead<'_> {
    fn status(&self) -> u16 {
        self.status.as_u16()
    }

    fn header(&self, name: &str) -> Option<&[u8]> {
        self.headers.get(name).map(HeaderValue::as_bytes)
    }
}
