//! The service around a client's service: waits, sends, reports the response, and retries.
//!
//! Must not know: how the pacer decides.

use std::fmt;
use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{Request, Response};
use http_body::Body;
use tollgate_store::{Clock, SystemClock};
use tower_service::Service;

use super::PacerLayer;
use super::body::PacedBody;
use super::retries::{CloneBody, ReplayBody};
use crate::attempts::{
    Exchange, MAX_REASON_WAIT, MAX_REFUSAL_BODY, ReadResponse, has_reason, read_fields, send_paced,
};
use crate::error::ClientError;
use crate::request_facts::RequestFacts;
use crate::shared_pacer::SharedPacer;

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

type BoxedFuture<B, E> =
    Pin<Box<dyn Future<Output = Result<Response<PacedBody<B>>, ClientError<E>>> + Send>>;

/// The future of a [`PacedService`]. Dropping it is safe at any time: a request that waits gives its place back.
#[must_use = "futures do nothing unless polled"]
pub struct PacedFuture<B: Body, E>(BoxedFuture<B, E>);

impl<B: Body, E> Future for PacedFuture<B, E> {
    type Output = Result<Response<PacedBody<B>>, ClientError<E>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.as_mut().poll(context)
    }
}

impl<B: Body, E> fmt::Debug for PacedFuture<B, E> {
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
    B::Error: Send,
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
        let (parts, body) = request.into_parts();
        let facts = RequestFacts::of_parts(&parts, &self.layer.hasher);
        let pacer = self.layer.pacer.clone();
        let retries_all_methods = self.layer.retries_all_methods;
        let exchange = ServiceExchange {
            service: ready,
            replay: self.layer.replay.clone(),
            messages: PhantomData,
        };
        let request = Box::new((parts, body));
        let sent = send_paced(exchange, pacer, facts, retries_all_methods, request);
        PacedFuture(Box::pin(sent))
    }
}

/// The inner service, and how it sends bodies again.
struct ServiceExchange<S, R, Q, B> {
    service: S,
    replay: R,
    messages: PhantomData<fn(Q) -> B>,
}

impl<S, R, Q, B> Exchange for ServiceExchange<S, R, Q, B>
where
    S: Service<Request<Q>, Response = Response<B>> + Send,
    S::Future: Send,
    S::Error: Send,
    R: ReplayBody<Q> + Send + Sync,
    Q: Send,
    B: Body<Data = Bytes> + Unpin + Send,
    B::Error: Send,
{
    type Request = (Parts, Q);
    type Response = Response<PacedBody<B>>;
    type Error = S::Error;

    fn copy(&self, (parts, body): &Self::Request) -> Option<Self::Request> {
        let body = self.replay.replay(body)?;
        Some((parts.clone(), body))
    }

    async fn prepare_retry(&mut self) -> Result<(), S::Error> {
        poll_fn(|context| self.service.poll_ready(context)).await
    }

    async fn send(&mut self, (parts, body): Self::Request) -> Result<Self::Response, S::Error> {
        let response = self.service.call(Request::from_parts(parts, body)).await?;
        Ok(response.map(PacedBody::new))
    }

    async fn read<T: Clock + 'static>(
        mut response: Self::Response,
        pacer: &SharedPacer<T>,
    ) -> ReadResponse<Self::Response> {
        let mut reader = read_fields(response.headers(), pacer.now());
        let status = response.status().as_u16();
        if has_reason(status, response.headers()) {
            let body = response
                .body_mut()
                .peek(MAX_REFUSAL_BODY, pacer.alarm(MAX_REASON_WAIT))
                .await;
            if let Some(media_type) = response.headers().get(CONTENT_TYPE) {
                reader.body(media_type.as_bytes(), &body);
            }
        }
        ReadResponse {
            response,
            status,
            info: reader.finish(),
        }
    }
}
