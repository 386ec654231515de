//! One exchange over HTTP/1.1 by hyper's client: requests with bodies, and upgrades.
//!
//! hyper's connection is a future that somebody has to poll. A task of its own would cost a wake-up of another thread for
//! every request and response; the request polls it instead. Must not know: pools, routes.

use std::future::{Future as _, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use hyper::body::Incoming;
use hyper::client::conn::http1::{Builder, Connection, SendRequest};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

use super::failure::{ExchangeError, FailureKind};
use super::response_deadline::ResponseDeadline;
use super::stream::UpstreamStream;
use crate::gateway::lazy_timer::LazyTimer;
use crate::gateway::limits::{MAX_FIELDS, MAX_HEAD_LEN};
use crate::gateway::request_body::RequestBody;

/// One exchange.
pub(super) struct HyperExchange {
    sender: SendRequest<RequestBody>,
    connection: Connection<TokioIo<UpstreamStream>, RequestBody>,
    /// Whether hyper has ended it. It must not be polled again.
    is_ended: bool,
}

impl HyperExchange {
    /// Begins HTTP/1.1 on a stream that has nothing to read.
    pub(super) async fn new(stream: UpstreamStream) -> hyper::Result<Self> {
        let handshake = Builder::new()
            .max_buf_size(MAX_HEAD_LEN)
            .max_headers(MAX_FIELDS)
            .handshake(TokioIo::new(stream));
        let (sender, connection) = handshake.await?;
        Ok(Self {
            sender,
            connection,
            is_ended: false,
        })
    }

    /// Sends a request and returns the head of its response.
    pub(super) async fn send(
        &mut self,
        request: Request<RequestBody>,
        deadline: &ResponseDeadline,
        timer: &mut LazyTimer,
    ) -> Result<Response<Incoming>, Box<ExchangeError>> {
        let mut response = pin!(self.sender.try_send_request(request));
        poll_fn(|context| {
            let ended = Self::drive(&mut self.connection, &mut self.is_ended, context);
            match response.as_mut().poll(context) {
                Poll::Ready(Ok(response)) => Poll::Ready(Ok(response)),
                Poll::Ready(Err(mut error)) => {
                    let unsent = error.take_message();
                    let failure = FailureKind::Http(error.into_error());
                    Poll::Ready(Err(ExchangeError::unsent(failure, unsent)))
                }
                Poll::Pending => match ended {
                    Some(Err(error)) => {
                        Poll::Ready(Err(ExchangeError::sent(FailureKind::Http(error))))
                    }
                    _ if deadline.has_passed(timer, context) => {
                        Poll::Ready(Err(ExchangeError::sent(FailureKind::Timeout)))
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

    /// Takes the stream back after a complete response, if it can be used for another exchange.
    pub(super) fn into_stream(mut self) -> Option<UpstreamStream> {
        let _ended = self.poll(&mut Context::from_waker(Waker::noop()));
        if self.is_ended || !self.sender.is_ready() {
            return None;
        }
        let parts = self.connection.into_parts();
        // Bytes that nobody asked for.
        parts.read_buf.is_empty().then(|| parts.io.into_inner())
    }

    /// Takes the stream back after status 101, with the bytes that arrived behind the response.
    pub(super) async fn into_upgraded(mut self) -> hyper::Result<(UpstreamStream, Bytes)> {
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
