//! One HTTP/1.1 connection to an upstream, driven by the task of the request that uses it.
//!
//! Requests without a body are written and read by `plain_exchange`, others by hyper; between two requests the connection is a plain
//! stream. If a request is dropped, its connection closes, so the upstream stops working. Must not know: pools, routes.

use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use hyper::body::{Body as _, Frame};
use hyper::header::UPGRADE;
use hyper::{Request, Response};
use tokio::time::Instant;

use super::OpenConnection;
use super::body::BodySource;
use super::body_decoder::BodyDecoder;
use super::failure::{ExchangeError, FailureKind};
use super::hyper_exchange::HyperExchange;
use super::message::copy_head;
use super::plain_exchange::{BodyFailure, PlainExchange};
use super::request_head::write_request_head;
use super::response_deadline::ResponseDeadline;
use super::response_head::body_framing;
use super::stream::UpstreamStream;
use crate::gateway::lazy_timer::LazyTimer;
use crate::gateway::request_body::RequestBody;

/// Room for most heads.
const REQUEST_HEAD_LEN: usize = 1_000;

/// One connection.
pub(in crate::gateway) struct Http1Connection {
    /// `None` while it passes from one kind of exchange to the other, which fails only with the connection.
    exchange: Option<ExchangeKind>,
    timer: LazyTimer,
    /// Whether it has served a request before.
    is_reused: bool,
    /// Whether the response lets the next request follow.
    is_reusable: bool,
    idle_since: Instant,
    /// Its place among the open connections of its address.
    _open: Arc<OpenConnection>,
}

enum ExchangeKind {
    Plain(PlainExchange),
    Hyper(Box<HyperExchange>),
}

impl Http1Connection {
    pub(super) fn new(stream: UpstreamStream, open: OpenConnection) -> Self {
        Self {
            exchange: Some(ExchangeKind::Plain(PlainExchange::new(stream))),
            timer: LazyTimer::default(),
            is_reused: false,
            is_reusable: true,
            idle_since: Instant::now(),
            _open: Arc::new(open),
        }
    }

    pub(super) const fn idle_since(&self) -> Instant {
        self.idle_since
    }

    /// Sends a request and returns the head of its response, until the deadline.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        deadline: &ResponseDeadline,
    ) -> Result<Response<BodySource>, Box<ExchangeError>> {
        let is_stale = self.is_reused;
        let is_plain = request.body().is_end_stream() && !request.headers().contains_key(UPGRADE);
        let sent = match is_plain {
            true => self.send_plain(request, deadline.without_body()).await,
            // Boxed, because it is large, and most requests have no body.
            false => Box::pin(self.send_by_hyper(request, deadline)).await,
        };
        sent.map_err(|mut error| {
            error.is_stale = is_stale;
            error
        })
    }

    async fn send_plain(
        &mut self,
        request: Request<RequestBody>,
        deadline: Instant,
    ) -> Result<Response<BodySource>, Box<ExchangeError>> {
        let Some(ExchangeKind::Plain(plain)) = &mut self.exchange else {
            return Err(ExchangeError::unsent(FailureKind::Closed, Some(request)));
        };
        let mut head = Vec::with_capacity(REQUEST_HEAD_LEN);
        write_request_head(&request, &mut head);
        if let Err((failure, is_sent)) = plain.send(&head, deadline, &mut self.timer).await {
            return Err(ExchangeError::new(failure, Some(request), is_sent));
        }
        let head = plain
            .receive_head(request.method(), deadline, &mut self.timer)
            .await;
        let head = match head {
            Ok(head) => head,
            Err(failure) => return Err(ExchangeError::new(failure, Some(request), true)),
        };
        self.is_reusable = head.is_reusable;
        let mut response = Response::new(BodySource::Plain(BodyDecoder::new(head.framing)));
        *response.status_mut() = head.status;
        *response.version_mut() = head.version;
        *response.headers_mut() = head.headers;
        Ok(response)
    }

    async fn send_by_hyper(
        &mut self,
        request: Request<RequestBody>,
        deadline: &ResponseDeadline,
    ) -> Result<Response<BodySource>, Box<ExchangeError>> {
        let Some(ExchangeKind::Plain(plain)) = self.exchange.take() else {
            return Err(ExchangeError::unsent(FailureKind::Closed, Some(request)));
        };
        let mut hyper = match HyperExchange::new(plain.into_stream()).await {
            Ok(hyper) => Box::new(hyper),
            Err(error) => {
                let failure = FailureKind::Http(error);
                return Err(ExchangeError::unsent(failure, Some(request)));
            }
        };
        // hyper keeps the request, and one that asks for an upgrade may be sent again.
        let copy = request.body().is_end_stream().then(|| copy_head(&request));
        let method = request.method().clone();
        let sent = hyper.send(request, deadline, &mut self.timer).await;
        self.exchange = Some(ExchangeKind::Hyper(hyper));
        match sent {
            Ok(response) => {
                // hyper repairs framing that is ambiguous.
                let (status, version) = (response.status(), response.version());
                match body_framing(&method, status, version, response.headers()) {
                    Ok(_) => Ok(response.map(BodySource::Hyper)),
                    Err(malformed) => Err(ExchangeError::sent(FailureKind::Malformed(malformed))),
                }
            }
            Err(mut error) => {
                error.request = error.request.or(copy);
                Err(error)
            }
        }
    }

    /// Reads and writes what is possible for an exchange by hyper. Returns `Some` when the connection has ended.
    pub(super) fn poll_hyper(&mut self, context: &mut Context<'_>) -> Option<hyper::Result<()>> {
        match &mut self.exchange {
            Some(ExchangeKind::Hyper(hyper)) => hyper.poll(context),
            _ => None,
        }
    }

    /// Reads the next part of the body of a plain exchange.
    pub(super) fn poll_plain_body(
        &mut self,
        decoder: &mut BodyDecoder,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyFailure>>> {
        match &mut self.exchange {
            Some(ExchangeKind::Plain(plain)) => plain.poll_body(decoder, context),
            _ => Poll::Ready(None),
        }
    }

    /// Makes it ready for the next request, after a complete response. Returns whether that is possible.
    pub(super) fn become_idle(&mut self) -> bool {
        if let Some(ExchangeKind::Hyper(_)) = &self.exchange
            && let Some(ExchangeKind::Hyper(hyper)) = self.exchange.take()
        {
            let stream = hyper.into_stream();
            self.exchange = stream.map(|stream| ExchangeKind::Plain(PlainExchange::new(stream)));
        }
        self.is_reused = true;
        self.idle_since = Instant::now();
        self.is_reusable && self.exchange.is_some()
    }

    /// Whether it can take the next request: the upstream may have closed it meanwhile, or sent what nobody asked for.
    pub(super) fn is_ready(&mut self) -> bool {
        match &mut self.exchange {
            Some(ExchangeKind::Plain(plain)) => plain.is_idle(),
            _ => false,
        }
    }

    /// Takes the stream back after status 101, with the bytes that arrived behind the response.
    pub(in crate::gateway) async fn into_upgraded(
        self,
    ) -> hyper::Result<Option<(UpstreamStream, Bytes)>> {
        match self.exchange {
            Some(ExchangeKind::Hyper(hyper)) => hyper.into_upgraded().await.map(Some),
            _ => Ok(None),
        }
    }
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection")
            .field("is_reused", &self.is_reused)
            .finish_non_exhaustive()
    }
}
