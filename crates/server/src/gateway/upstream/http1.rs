//! One HTTP/1.1 connection to an upstream, driven by the task of the request that uses it.
//!
//! hyper's connection is a future that somebody has to poll. A task of its own would cost a wake-up of another thread for
//! every request and response; the request polls it instead, and an idle connection is polled when it is taken from its
//! pool. If the request is dropped, its connection closes, so the upstream stops working. Must not know: pools, routes.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::time::Instant;

use super::OpenConnection;
use super::failure::{ExchangeError, FailureKind};
use super::stream::UpstreamStream;
use crate::gateway::limits::{MAX_FIELDS, MAX_HEAD_LEN};
use crate::gateway::request_body::RequestBody;

/// One connection.
pub(in crate::gateway) struct Http1Connection {
    sender: SendRequest<RequestBody>,
    connection: Connection<TokioIo<UpstreamStream>, RequestBody>,
    /// Whether hyper has ended it. It must not be polled again.
    is_ended: bool,
    /// Whether it has served a request before.
    is_reused: bool,
    idle_since: Instant,
    /// Its place among the open connections of its address.
    _open: Arc<OpenConnection>,
}

impl Http1Connection {
    /// Begins HTTP/1.1 on a stream.
    pub(super) async fn new(stream: UpstreamStream, open: OpenConnection) -> hyper::Result<Self> {
        let handshake = Builder::new()
            .max_buf_size(MAX_HEAD_LEN)
            .max_headers(MAX_FIELDS)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        Ok(Self {
            sender,
            connection,
            is_ended: false,
            is_reused: false,
            idle_since: Instant::now(),
            _open: Arc::new(open),
        })
    }

    pub(super) const fn idle_since(&self) -> Instant {
        self.idle_since
    }

    pub(super) const fn is_reused(&self) -> bool {
        self.is_reused
    }

    /// Sends a request and returns the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
    ) -> Result<Response<Incoming>, Box<ExchangeError>> {
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            let ended = Self::drive(&mut self.connection, &mut self.is_ended, context);
            match response.as_mut().poll(context) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => {
                    let unsent = error.take_message();
                    let failure = FailureKind::Http(error.into_error());
                    Poll::Ready(Err(ExchangeError::new(failure, unsent)))
                }
                Poll::Pending => match ended {
                    Some(Err(error)) => {
                        let failure = FailureKind::Http(error);
                        Poll::Ready(Err(ExchangeError::new(failure, None)))
                    }
                    _ => Poll::Pending,
                },
            }
        })
        .await
    }

    /// Reads and writes what is possible. Returns `Some` when the connection has ended.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Option<hyper::Result<()>> {
        Self::drive(&mut self.connection, &mut self.is_ended, context)
    }

    fn drive(
        connection: &mut Connection<TokioIo<UpstreamStream>, RequestBody>,
        is_ended: &mut bool,
        context: &mut Context<'_>,
    ) -> Option<hyper::Result<()>> {
        if *is_ended {
            return None;
        }
        match connection.poll_without_shutdown(context) {
            Poll::Pending => None,
            Poll::Ready(ended) => {
                *is_ended = true;
                Some(ended)
            }
        }
    }

    /// Whether it can take the next request. Call it when a response is complete, and before a connection is used again:
    /// the upstream may have closed it, or sent what nobody asked for.
    pub(super) fn is_ready(&mut self) -> bool {
        let _ended = self.poll(&mut Context::from_waker(Waker::noop()));
        !self.is_ended && self.sender.is_ready()
    }

    /// Marks it as idle from now on.
    pub(super) fn become_idle(&mut self) {
        self.is_reused = true;
        self.idle_since = Instant::now();
    }

    /// Takes the stream back after status 101, with the bytes that arrived behind the response.
    pub(in crate::gateway) async fn into_upgraded(
        mut self,
    ) -> hyper::Result<(UpstreamStream, Bytes)> {
        poll_fn(|context| match self.is_ended {
            true => Poll::Ready(Ok(())),
            false => match self.poll(context) {
                Some(ended) => Poll::Ready(ended),
                None => Poll::Pending,
            },
        })
        .await?;
        let parts = self.connection.into_parts();
        Ok((parts.io.into_inner(), parts.read_buf))
    }
}

impl std::fmt::Debug for Http1Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Http1Connection")
            .field("is_ended", &self.is_ended)
            .finish_non_exhaustive()
    }
}
