//! One call, from its head to its trailers.
//!
//! A request that arrives whole is answered on the task of its connection: no task is spawned and no timer is set. If the
//! request is incomplete, a store has to be awaited or the reply is delayed, [`finish_call`] completes the call in a task of
//! its own. Must not know: services.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method as HttpMethod, Request, Response, StatusCode};
use tokio::time::sleep;

use super::call_buffers::{CALL_LEN, CallBuffers, ConnectionBuffers};
use super::frame::MessageDecoder;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, GrpcMethod, GrpcReply};
use super::status::{GrpcCode, GrpcStatus, ok_trailers};
use super::streams::RequestStream;
use crate::listen::{ShutdownSignal, confirmed_timeout};

const GRPC_CONTENT_TYPE: HeaderValue = HeaderValue::from_static("application/grpc");

/// A call in progress.
#[derive(Debug)]
pub(super) struct Call {
    method: GrpcMethod,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    decoder: MessageDecoder,
    /// How many bytes of the connection's flow-control window it holds.
    held_window: usize,
    /// The request, once it is complete.
    message: Option<Bytes>,
    /// The reservation of what it buffers while the request is incomplete.
    buffers: CallBuffers,
}

/// The progress of a call.
pub(super) enum CallProgress {
    /// The call has ended.
    Done,
    /// The request is incomplete.
    ReadingRequest(Call),
    /// The reply is awaited.
    AwaitingReply(Call, PendingGrpcReply),
    /// The reply is ready and delayed.
    HoldingReply(SendResponse<Bytes>, GrpcReply),
}

/// A reply that waits for a store.
pub(super) type PendingGrpcReply =
    Pin<Box<dyn Future<Output = Result<GrpcReply, GrpcStatus>> + Send>>;

impl Call {
    /// Starts a call, or answers why it cannot be made.
    pub(super) fn begin(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        limits: &GrpcLimits,
        buffers: &Arc<ConnectionBuffers>,
    ) -> Option<Self> {
        let (head, body) = request.into_parts();
        if let Some(refusal) = http_rejection(&head) {
            send_head(&mut respond, refusal, true);
            return None;
        }
        let Some(method) = GrpcMethod::from_path(head.uri.path()) else {
            let message = "there is no such method; the reflection service lists all methods";
            send_error(
                &mut respond,
                &GrpcStatus::new(GrpcCode::Unimplemented, message),
            );
            return None;
        };
        Some(Self {
            method,
            body,
            respond,
            decoder: MessageDecoder::new(limits.max_message_len),
            held_window: 0,
            message: None,
            buffers: CallBuffers::new(Arc::clone(buffers)),
        })
    }

    pub(super) const fn method(&self) -> GrpcMethod {
        self.method
    }

    /// Ends the call because a limit is reached.
    pub(super) fn reject(mut self, why: &str) {
        send_error(
            &mut self.respond,
            &GrpcStatus::new(GrpcCode::ResourceExhausted, why),
        );
    }

    /// Advances the call as far as possible without waiting.
    pub(super) fn advance<S: GrpcHandler>(
        mut self,
        context: &mut Context<'_>,
        service: &Arc<S>,
        stopping: &ShutdownSignal,
    ) -> CallProgress {
        let message = match self.poll_request(context) {
            Poll::Pending => return CallProgress::ReadingRequest(self),
            Poll::Ready(message) => message,
        };
        let (method, is_stopping) = (self.method, stopping.is_triggered());
        match message {
            // The client has cancelled the call.
            None => CallProgress::Done,
            Some(Err(status)) => self.complete(Err(status)),
            Some(Ok(message)) if service.has_fleet() => {
                let service = Arc::clone(service);
                let mut pending: PendingGrpcReply =
                    Box::pin(async move { service.handle(method, &message, is_stopping).await });
                match pending.as_mut().poll(context) {
                    Poll::Ready(answer) => self.complete(answer),
                    Poll::Pending => CallProgress::AwaitingReply(self, pending),
                }
            }
            // Without a fleet the reply is ready now. The future is large, so it stays on the stack instead of in a box.
            Some(Ok(message)) => {
                let answer = pin!(service.handle(method, &message, is_stopping));
                match answer.poll(context) {
                    Poll::Ready(answer) => self.complete(answer),
                    Poll::Pending => {
                        let message = "the reply was not ready although no fleet decides";
                        self.complete(Err(GrpcStatus::new(GrpcCode::Internal, message)))
                    }
                }
            }
        }
    }

    /// Sends the reply, unless it is delayed.
    fn complete(mut self, answer: Result<GrpcReply, GrpcStatus>) -> CallProgress {
        self.release_window();
        match answer {
            Ok(answer) if !answer.delay.is_zero() => {
                return CallProgress::HoldingReply(self.respond, answer);
            }
            Ok(answer) => send(&mut self.respond, answer.message),
            Err(status) => send_error(&mut self.respond, &status),
        }
        CallProgress::Done
    }

    /// Reads the one message of the request.
    fn poll_request(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, GrpcStatus>>> {
        while !self.body.is_end_stream() {
            let Poll::Ready(data) = self.body.poll_data(context) else {
                return match self.reserve() {
                    Ok(()) => Poll::Pending,
                    Err(status) => Poll::Ready(Some(Err(status))),
                };
            };
            match data {
                // Many clients end the request with an empty frame.
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    // The window is released when the call ends. So the window bounds what a connection can make us buffer,
                    // however many calls it starts.
                    self.held_window = self.held_window.saturating_add(bytes.len());
                    self.decoder.push(bytes);
                    if let Err(status) = self.take_message() {
                        return Poll::Ready(Some(Err(status)));
                    }
                }
                Some(Err(_gone)) => return Poll::Ready(None),
                None => break,
            }
        }
        let missing = || {
            GrpcStatus::new(
                GrpcCode::InvalidArgument,
                "the call has no complete message",
            )
        };
        Poll::Ready(Some(match self.message.take() {
            Some(message) if self.decoder.is_empty() => Ok(message),
            _ => Err(missing()),
        }))
    }

    fn take_message(&mut self) -> Result<(), GrpcStatus> {
        if self.message.is_some() {
            let message = "the call has more than one message";
            return Err(GrpcStatus::new(GrpcCode::InvalidArgument, message));
        }
        self.message = self.decoder.next_message()?;
        if self.message.is_some() && !self.decoder.is_empty() {
            let message = "there are bytes after the message";
            return Err(GrpcStatus::new(GrpcCode::InvalidArgument, message));
        }
        Ok(())
    }

    /// Reserves what the call buffers while more of its request is awaited, and frees the larger buffer that it arrived in.
    fn reserve(&mut self) -> Result<(), GrpcStatus> {
        let (held, declared) = match &mut self.message {
            // Only the end of the stream is missing.
            Some(message) => {
                if self.buffers.held() < message.len() {
                    *message = Bytes::copy_from_slice(message);
                }
                (message.len(), 0)
            }
            None => self.decoder.detach(),
        };
        self.buffers.resize(CALL_LEN.saturating_add(held), declared)
    }

    fn release_window(&mut self) {
        // It fails if the stream is gone, which needs no handling.
        let _released = self.body.flow_control().release_capacity(self.held_window);
    }

    /// Converts the call into a stream of replies.
    pub(super) fn into_stream(
        mut self,
        limits: &GrpcLimits,
    ) -> Option<(RequestStream, SendStream<Bytes>)> {
        let stream = send_head(&mut self.respond, Response::new(()), false)?;
        let requests = RequestStream::new(self.method, self.body, self.buffers, limits);
        Some((requests, stream))
    }
}

/// The HTTP response to a request that is not a gRPC call.
fn http_rejection(head: &Parts) -> Option<Response<()>> {
    let is_grpc = |value: &HeaderValue| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest, [] | [b';', ..] | b"+proto"))
    };
    let mut response = Response::new(());
    if head.method != HttpMethod::POST {
        *response.status_mut() = StatusCode::METHOD_NOT_ALLOWED;
        response
            .headers_mut()
            .insert(ALLOW, HeaderValue::from_static("POST"));
        return Some(response);
    }
    if !head.headers.get(CONTENT_TYPE).is_some_and(is_grpc) {
        *response.status_mut() = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Some(response);
    }
    None
}

/// Sends a reply and the trailers. Errors mean that the client has cancelled.
fn send(respond: &mut SendResponse<Bytes>, message: Bytes) {
    if let Some(mut stream) = send_head(respond, Response::new(()), false)
        && stream.send_data(message, false).is_ok()
    {
        finish_stream(&mut stream, Ok(()));
    }
}

/// Ends a stream of replies with its trailers.
pub(super) fn finish_stream(stream: &mut SendStream<Bytes>, how: Result<(), GrpcStatus>) {
    let trailers = match how {
        Ok(()) => ok_trailers(),
        Err(status) => {
            let mut fields = HeaderMap::with_capacity(2);
            status.write(&mut fields);
            fields
        }
    };
    // It fails if the client has cancelled.
    let _sent = stream.send_trailers(trailers);
}

fn send_error(respond: &mut SendResponse<Bytes>, status: &GrpcStatus) {
    let mut response = Response::new(());
    status.write(response.headers_mut());
    let _no_body = send_head(respond, response, true);
}

fn send_head(
    respond: &mut SendResponse<Bytes>,
    mut response: Response<()>,
    is_end: bool,
) -> Option<SendStream<Bytes>> {
    if response.status() == StatusCode::OK {
        response
            .headers_mut()
            .insert(CONTENT_TYPE, GRPC_CONTENT_TYPE);
    }
    respond.send_response(response, is_end).ok()
}

/// Completes a call that could not be answered immediately: its request is incomplete, its reply is awaited, or its reply is
/// delayed.
pub(super) async fn finish_call<S: GrpcHandler>(
    step: CallProgress,
    limits: GrpcLimits,
    service: Arc<S>,
    stopping: ShutdownSignal,
) {
    let step = match step {
        CallProgress::ReadingRequest(mut call) => {
            let time = call.buffers.connection().timeout(limits.message_timeout);
            let message = poll_fn(|context| call.poll_request(context));
            match confirmed_timeout(time, message).await {
                Ok(None) => return,
                Ok(Some(Err(status))) => call.complete(Err(status)),
                Ok(Some(Ok(message))) => {
                    let answer = service.handle(call.method, &message, stopping.is_triggered());
                    let answer = answer.await;
                    call.complete(answer)
                }
                Err(_) => {
                    let message = "the request was not complete in time";
                    let status = GrpcStatus::new(GrpcCode::DeadlineExceeded, message);
                    return send_error(&mut call.respond, &status);
                }
            }
        }
        CallProgress::AwaitingReply(call, pending) => {
            let answer = pending.await;
            call.complete(answer)
        }
        other => other,
    };
    if let CallProgress::HoldingReply(mut respond, answer) = step {
        let wait = Duration::from_nanos(answer.delay.as_nanos());
        // The whole delay: an earlier reply would use up quota that is promised to others.
        tokio::select! {
            () = sleep(wait) => {}
            // The client cancelled the call: dropping the permit gives its place in the queue back.
            _reset = poll_fn(|context| respond.poll_reset(context)) => return,
        }
        if let Some(permit) = answer.wait_permit {
            permit.complete();
        }
        send(&mut respond, answer.message);
    }
}
