//! The service around a client's service: waits, sends, reports the response, and retries.
//!
//! Must not know: how the pacer decides.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use http::{Request, Response};
use http_body::Body;
use tollgate_http::{RateLimitInfo, ResponseReader};
use tollgate_store::{Clock, SystemClock};
use tower_service::Service;

use super::PacerLayer;
use super::body::PacedBody;
use super::request_facts::RequestFacts;
use super::retries::{CloneBody, ReplayBody};
use crate::error::PaceError;
use crate::retry::RetryDecision;

/// The longest body of a refusal that is read for its reason.
const MAX_REFUSAL_BODY: usize = 16_384;

/// A client's service behind a [`PacerLayer`]. Its response is that of the inner service; the last refusal is passed on.
#[derive(Debug)]
pub struct PacedService<S, R = CloneBody, C: Clock + 'static = SystemClock> {
    inner: S,
    layer: PacerLayer<R, C>,
}

impl<S, R, C: Clock + 'static> PacedService<S, R, C> {
    pub(super) const fn new(inner: S, layer: PacerLayer<R, C>) -> Self {
        Self { inner, layer }
    }

    /// The inner service.
    pub const fn get_ref(&self) -> &S {
        &self.inner
    }
}

impl<S: Clone, R: Clone, C: Clock + 'static> Clone for PacedService<S, R, C> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

/// A request failed, or was not sent because of a limit.
#[derive(Debug)]
pub enum ClientError<E> {
    /// The request was not sent: its wait would have been too long.
    Pace(PaceError),
    /// The inner service failed.
    Inner(E),
}

impl<E: fmt::Display> fmt::Display for ClientError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pace(error) => error.fmt(f),
            Self::Inner(error) => error.fmt(f),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for ClientError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Pace(_) => None,
            Self::Inner(error) => Some(error),
        }
    }
}

type BoxedFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<PacedBody<B>>, ClientError<E>>> + Send>>;

/// The future of a [`PacedService`]. Dropping it is safe at any time: a request that waits gives its place back.
#[must_use = "futures do nothing unless polled"]
pub struct PacedFuture<B, E>(BoxedFuture<B, E>);

impl<B, E> Future for PacedFuture<B, E> {
    type Output = Result<Response<PacedBody<B>>, ClientError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<B, E> fmt::Debug for PacedFuture<B, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacedFuture").finish_non_exhaustive()
    }
}

impl<S, R, C, Q, B> Service<Request<Q>> for PacedService<S, R, C>
where
    S: Service<Request<Q>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send + 'static,
    R: ReplayBody<Q> + Clone + Send + Sync + 'static,
    C: Clock + 'static,
    Q: Send + 'static,
    B: Body<Data = Bytes> + Unpin + Send + 'static,
{
    type Response = Response<PacedBody<B>>;
    type Error = ClientError<S::Error>;
    type Future = PacedFuture<B, S::Error>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(context).map_err(ClientError::Inner)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The clone takes the place of the service that is ready, which has to be the one that is called.
        let clone = self.inner.clone();
        let ready = std::mem::replace(&mut self.inner, clone);
        let layer = self.layer.clone();
        PacedFuture(Box::pin(send(layer, ready, request)))
    }
}

/// Sends a request until it is not refused, or a retry is not allowed.
async fn send<S, R, C, Q, B>(
    layer: PacerLayer<R, C>,
    mut service: S,
    request: Request<Q>,
) -> Result<Response<PacedBody<B>>, ClientError<S::Error>>
where
    S: Service<Request<Q>, Response = Response<B>>,
    R: ReplayBody<Q>,
    C: Clock + 'static,
    B: Body<Data = Bytes> + Unpin,
{
    let (parts, body) = request.into_parts();
    let facts = RequestFacts::new(&parts, &layer.hasher);
    let may_retry = facts.is_idempotent || layer.retries_all_methods;
    let mut next = Some((parts, body));
    let mut attempt = 1;
    while let Some((parts, body)) = next.take() {
        let copy = if may_retry {
            layer.replay.replay(&body).map(|body| (parts.clone(), body))
        } else {
            None
        };
        let acquired = layer.pacer.acquire(&facts.as_pace_request(attempt)).await;
        let mut permit = acquired.map_err(ClientError::Pace)?;
        if attempt > 1 {
            std::future::poll_fn(|context| service.poll_ready(context))
                .await
                .map_err(ClientError::Inner)?;
        }
        permit.mark_sent();
        let response = match service.call(Request::from_parts(parts, body)).await {
            Ok(response) => response.map(PacedBody::new),
            Err(error) => {
                permit.fail();
                return Err(ClientError::Inner(error));
            }
        };
        let (response, info) = read(response, layer.pacer.now()).await;
        let refusal = permit.finish(response.status().as_u16(), &info);
        let (Some(refusal), Some(copy)) = (refusal, copy) else {
            return Ok(response);
        };
        let decision = layer.pacer.decide_retry(&refusal, attempt, facts.deadline);
        if decision == RetryDecision::GiveUp {
            return Ok(response);
        }
        next = Some(copy);
        attempt += 1;
    }
    // Every turn of the loop returns or sets the next request.
    Err(ClientError::Pace(PaceError::QueueFull))
}

/// Reads the limits out of a response, and the reason out of a refusal's short JSON body.
async fn read<B: Body<Data = Bytes> + Unpin>(
    mut response: Response<PacedBody<B>>,
    now: tollgate_core::Timestamp,
) -> (Response<PacedBody<B>>, RateLimitInfo) {
    let mut reader = ResponseReader::new(now);
    for (name, value) in response.headers() {
        reader.field(name.as_str(), value.as_bytes());
    }
    let status = response.status().as_u16();
    if matches!(status, 403 | 429 | 503 | 529) && has_short_body(&response) {
        let body = response.body_mut().peek(MAX_REFUSAL_BODY).await;
        if let Some(media_type) = response.headers().get(CONTENT_TYPE) {
            reader.body(media_type.as_bytes(), &body);
        }
    }
    (response, reader.finish())
}

/// Whether a body has a known, short length. Nothing waits for a body that may never end.
fn has_short_body<B>(response: &Response<B>) -> bool {
    let length = response.headers().get(CONTENT_LENGTH);
    let length = length.and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    length.is_some_and(|length| (1..=MAX_REFUSAL_BODY).contains(&length))
}
