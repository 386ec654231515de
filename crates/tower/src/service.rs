//! The service around an inner service: decides, then calls it.
//!
//! Must not know: how requests are decided and responses are settled.

use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::{Request, Response};
use http_body::Body;
use tollgate_service::{Clock, SystemClock};
use tower_service::Service;

use crate::body::ResponseBody;
use crate::future::{ResponseFuture, RunningRequest};
use crate::layer_state::{Decision, LayerState};
use crate::request::RequestHead;

/// An inner service behind a [`TollgateLayer`](crate::TollgateLayer).
///
/// Its error is that of the inner service: a refusal is a response. It is ready when the inner service is.
#[derive(Debug)]
pub struct TollgateService<S, C = SystemClock> {
    inner: S,
    state: Arc<LayerState<C>>,
    /// The peer of all requests that do not name theirs.
    peer: Option<IpAddr>,
}

impl<S: Clone, C> Clone for TollgateService<S, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            state: Arc::clone(&self.state),
            peer: self.peer,
        }
    }
}

impl<S, C> TollgateService<S, C> {
    pub(crate) const fn new(inner: S, state: Arc<LayerState<C>>) -> Self {
        Self {
            inner,
            state,
            peer: None,
        }
    }

    /// The same for the requests of one connection, whose peer is at this address. A [`PeerAddress`](crate::PeerAddress) in the
    /// extensions of a request comes first; this one costs nothing for each request.
    ///
    /// ```
    /// use tollgate_tower::TollgateLayer;
    /// use tower_layer::Layer as _;
    ///
    /// let layer = TollgateLayer::from_policy("limits: [{ name: per-client, key: ip, rate: 5/s }]")?;
    /// let of_one_connection = layer.layer("inner").with_peer([192, 0, 2, 7].into());
    /// assert_eq!(of_one_connection.get_ref(), &"inner");
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    #[must_use]
    pub fn with_peer(mut self, address: IpAddr) -> Self {
        self.peer = Some(address);
        self
    }

    /// The inner service.
    ///
    /// ```
    /// use tollgate_tower::TollgateLayer;
    /// use tower_layer::Layer as _;
    ///
    /// let layer = TollgateLayer::from_policy("limits: [{ name: all, rate: 5/s }]")?;
    /// assert_eq!(layer.layer("inner").get_ref(), &"inner");
    /// # Ok::<(), tollgate_tower::InvalidLayer>(())
    /// ```
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S, C, RequestBody, B> Service<Request<RequestBody>> for TollgateService<S, C>
where
    S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: 'static,
    RequestBody: Send + 'static,
    B: Body<Data = Bytes> + 'static,
    C: Clock + 'static,
{
    type Response = Response<ResponseBody<B, C>>;
    type Error = S::Error;
    type Future = ResponseFuture<S::Future, B, S::Error, C>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, mut request: Request<RequestBody>) -> Self::Future {
        let head = RequestHead::of_request(&request, self.peer);
        let running = match self.state.decide_local(head) {
            Some(Decision::Admitted(admission)) if admission.starts_now() => {
                RunningRequest::start(admission, &mut request)
            }
            other => return self.refuse_or_call_later(request, other),
        };
        ResponseFuture::running(self.inner.call(request), running)
    }
}

impl<S, C: Clock + 'static> TollgateService<S, C> {
    /// A request that is refused, that has to wait, or that is not decided yet. Out of line, because most requests need none of it.
    #[inline(never)]
    fn refuse_or_call_later<RequestBody, B>(
        &mut self,
        request: Request<RequestBody>,
        decision: Option<Decision<C>>,
    ) -> ResponseFuture<S::Future, B, S::Error, C>
    where
        S: Service<Request<RequestBody>, Response = Response<B>> + Clone + Send + 'static,
        S::Future: Send,
        S::Error: 'static,
        RequestBody: Send + 'static,
        B: Body<Data = Bytes> + 'static,
    {
        if let Some(Decision::Refused(response)) = decision {
            return ResponseFuture::refused(response);
        }
        // The clone takes the place of the service that is ready, which has to be the one that is called.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let layer = (Arc::clone(&self.state), self.peer);
        ResponseFuture::boxed(call_later(layer, ready, request, decision))
    }
}

/// Waits for the decision and for the request's turn, then calls the inner service.
async fn call_later<S, C, RequestBody, B>(
    (state, peer): (Arc<LayerState<C>>, Option<IpAddr>),
    mut inner: S,
    request: Request<RequestBody>,
    decision: Option<Decision<C>>,
) -> Result<Response<ResponseBody<B, C>>, S::Error>
where
    S: Service<Request<RequestBody>, Response = Response<B>>,
    B: Body<Data = Bytes>,
    C: Clock + 'static,
{
    let (parts, body) = request.into_parts();
    let decision = match decision {
        Some(decision) => decision,
        None => state.decide(RequestHead::of_parts(&parts, peer)).await,
    };
    let mut admission = match decision {
        Decision::Refused(response) => return Ok(response.map(ResponseBody::refusal)),
        Decision::Admitted(admission) => admission,
    };
    if let Some(turn) = admission.wait.take() {
        let (wait, permit) = *turn;
        // Dropping this future drops the permit, which gives the place in the queue back.
        tokio::time::sleep(wait).await;
        permit.complete();
    }
    let admission = match state.wait_for_turn(admission).await {
        Ok(admission) => admission,
        Err(response) => return Ok(response.map(ResponseBody::refusal)),
    };
    let mut request = Request::from_parts(parts, body);
    let running = RunningRequest::start(admission, &mut request);
    let called = inner.call(request).await;
    running.finish(called)
}
