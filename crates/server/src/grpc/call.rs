//! One call, from its head to its trailers.
//!
//! A question that came whole is answered in the same breath, on the task of its connection: nothing is spawned, and no
//! timer is set. What takes longer, because the question is not whole, a store has to be waited for or the answer is held
//! back, goes on by itself, [`slowly`]. Must not know: what is asked.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use hyper::header::{ALLOW, CONTENT_TYPE, HeaderValue};
use hyper::http::request::Parts;
use hyper::{HeaderMap, Method as Verb, Request, Response, StatusCode};
use tokio::time::{sleep, timeout};

use super::frame::MessageDecoder;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, GrpcMethod, GrpcReply};
use super::status::{GrpcCode, GrpcStatus, ok_trailers};
use crate::listen::ShutdownSignal;

const GRPC: HeaderValue = HeaderValue::from_static("application/grpc");

/// A call that has begun.
#[derive(Debug)]
pub(super) struct Call {
    method: GrpcMethod,
    body: RecvStream,
    respond: SendResponse<Bytes>,
    inbox: MessageDecoder,
    /// How much of the connection's window it holds.
    held: usize,
    /// The question, once it is there.
    message: Option<Bytes>,
}

/// How far a call has come.
pub(super) enum CallProgress {
    /// It is over.
    Done,
    /// The rest of the question is missing.
    ReadingRequest(Call),
    /// The answer is being found.
    AwaitingReply(Call, PendingGrpcReply),
    /// The answer is there and waits.
    HoldingReply(SendResponse<Bytes>, GrpcReply),
}

/// An answer that a store is waited for.
pub(super) type PendingGrpcReply =
    Pin<Box<dyn Future<Output = Result<GrpcReply, GrpcStatus>> + Send>>;

impl Call {
    /// Begins a call, or answers at once why it cannot be made.
    pub(super) fn begin(
        request: Request<RecvStream>,
        mut respond: SendResponse<Bytes>,
        limits: &GrpcLimits,
    ) -> Option<Self> {
        let (head, body) = request.into_parts();
        if let Some(refusal) = refusal(&head) {
            send_head(&mut respond, refusal, true);
            return None;
        }
        let Some(method) = GrpcMethod::from_path(head.uri.path()) else {
            let message = "there is no such method; ask the reflection service which there are";
            fail(
                &mut respond,
                &GrpcStatus::new(GrpcCode::Unimplemented, message),
            );
            return None;
        };
        Some(Self {
            method,
            body,
            respond,
            inbox: MessageDecoder::new(limits.max_message_len),
            held: 0,
            message: None,
        })
    }

    pub(super) const fn method(&self) -> GrpcMethod {
        self.method
    }

    /// Ends it because there is no room for it.
    pub(super) fn reject(mut self, why: &str) {
        fail(
            &mut self.respond,
            &GrpcStatus::new(GrpcCode::ResourceExhausted, why),
        );
    }

    /// Goes on as far as is possible now.
    pub(super) fn advance<S: GrpcHandler>(
        mut self,
        context: &mut Context<'_>,
        service: &Arc<S>,
        stopping: &ShutdownSignal,
    ) -> CallProgress {
        let question = match self.poll_question(context) {
            Poll::Pending => return CallProgress::ReadingRequest(self),
            Poll::Ready(question) => question,
        };
        let (method, is_stopping) = (self.method, stopping.is_triggered());
        match question {
            // Whoever asked is gone.
            None => CallProgress::Done,
            Some(Err(status)) => self.end(Err(status)),
            Some(Ok(message)) if service.has_fleet() => {
                let service = Arc::clone(service);
                let mut deciding: PendingGrpcReply =
                    Box::pin(async move { service.handle(method, &message, is_stopping).await });
                match deciding.as_mut().poll(context) {
                    Poll::Ready(answer) => self.end(answer),
                    Poll::Pending => CallProgress::AwaitingReply(self, deciding),
                }
            }
            // Over memory it is ready now. It is large, so it stays on the stack and is not copied into a box.
            Some(Ok(message)) => {
                let answer = pin!(service.handle(method, &message, is_stopping));
                match answer.poll(context) {
                    Poll::Ready(answer) => self.end(answer),
                    Poll::Pending => {
                        let message = "the answer was awaited, and no fleet decides";
                        self.end(Err(GrpcStatus::new(GrpcCode::Internal, message)))
                    }
                }
            }
        }
    }

    /// Sends the answer, unless it is to be held back.
    fn end(mut self, answer: Result<GrpcReply, GrpcStatus>) -> CallProgress {
        self.release();
        match answer {
            Ok(answer) if !answer.delay.is_zero() => {
                return CallProgress::HoldingReply(self.respond, answer);
            }
            Ok(answer) => send(&mut self.respond, answer.message),
            Err(status) => fail(&mut self.respond, &status),
        }
        CallProgress::Done
    }

    /// The one message of the question, when all of it is there.
    fn poll_question(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Bytes, GrpcStatus>>> {
        while !self.body.is_end_stream() {
            match ready!(self.body.poll_data(context)) {
                // Many end their question with an empty piece.
                Some(Ok(bytes)) if bytes.is_empty() => {}
                Some(Ok(bytes)) => {
                    // The window is given back when the call is over: what a connection can make us hold is bounded by
                    // its window, however many calls it begins.
                    self.held = self.held.saturating_add(bytes.len());
                    self.inbox.push(bytes);
                    if let Err(status) = self.take_message() {
                        return Poll::Ready(Some(Err(status)));
                    }
                }
                Some(Err(_gone)) => return Poll::Ready(None),
                None => break,
            }
        }
        let missing =
            || GrpcStatus::new(GrpcCode::InvalidArgument, "the call has no whole message");
        Poll::Ready(Some(match self.message.take() {
            Some(message) if self.inbox.is_empty() => Ok(message),
            _ => Err(missing()),
        }))
    }

    fn take_message(&mut self) -> Result<(), GrpcStatus> {
        if self.message.is_some() {
            let message = "the call has more than one message";
            return Err(GrpcStatus::new(GrpcCode::InvalidArgument, message));
        }
        self.message = self.inbox.next_message()?;
        if self.message.is_some() && !self.inbox.is_empty() {
            let message = "there is something after the message";
            return Err(GrpcStatus::new(GrpcCode::InvalidArgument, message));
        }
        Ok(())
    }

    fn release(&mut self) {
        // It fails if more is released than was held, which cannot be, or if the stream is gone.
        let _released = self.body.flow_control().release_capacity(self.held);
    }

    /// The parts of a call whose answers are many.
    pub(super) fn into_stream(mut self) -> Option<(GrpcMethod, RecvStream, SendStream<Bytes>)> {
        let stream = send_head(&mut self.respond, Response::new(()), false)?;
        Some((self.method, self.body, stream))
    }
}

/// Why a request is no call, as HTTP says it.
fn refusal(head: &Parts) -> Option<Response<()>> {
    let is_grpc = |value: &HeaderValue| {
        let rest = value.as_bytes().strip_prefix(b"application/grpc");
        rest.is_some_and(|rest| matches!(rest, [] | [b';', ..] | b"+proto"))
    };
    let mut response = Response::new(());
    if head.method != Verb::POST {
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

/// Sends an answer and that all is well. Whoever does not want it any more does not get it.
fn send(respond: &mut SendResponse<Bytes>, message: Bytes) {
    if let Some(mut stream) = send_head(respond, Response::new(()), false)
        && stream.send_data(message, false).is_ok()
    {
        finish_stream(&mut stream, Ok(()));
    }
}

/// Ends a stream of answers.
pub(super) fn finish_stream(stream: &mut SendStream<Bytes>, how: Result<(), GrpcStatus>) {
    let trailers = match how {
        Ok(()) => ok_trailers(),
        Err(status) => {
            let mut fields = HeaderMap::with_capacity(2);
            status.write(&mut fields);
            fields
        }
    };
    // It fails if nobody wants it any more.
    let _sent = stream.send_trailers(trailers);
}

fn fail(respond: &mut SendResponse<Bytes>, status: &GrpcStatus) {
    let mut response = Response::new(());
    status.write(response.headers_mut());
    let _no_body = send_head(respond, response, true);
}

fn send_head(
    respond: &mut SendResponse<Bytes>,
    mut response: Response<()>,
    is_all: bool,
) -> Option<SendStream<Bytes>> {
    if response.status() == StatusCode::OK {
        response.headers_mut().insert(CONTENT_TYPE, GRPC);
    }
    respond.send_response(response, is_all).ok()
}

/// The rest of a call that takes longer: its question is not complete, its answer is not found yet, or is held back.
pub(super) async fn finish_call<S: GrpcHandler>(
    step: CallProgress,
    limits: GrpcLimits,
    service: Arc<S>,
    stopping: ShutdownSignal,
) {
    let step = match step {
        CallProgress::ReadingRequest(mut call) => {
            let question = poll_fn(|context| call.poll_question(context));
            match timeout(limits.message_timeout, question).await {
                Ok(None) => return,
                Ok(Some(Err(status))) => call.end(Err(status)),
                Ok(Some(Ok(message))) => {
                    let answer = service.handle(call.method, &message, stopping.is_triggered());
                    let answer = answer.await;
                    call.end(answer)
                }
                Err(_) => {
                    let message = "the question was not complete in time";
                    let status = GrpcStatus::new(GrpcCode::DeadlineExceeded, message);
                    return fail(&mut call.respond, &status);
                }
            }
        }
        CallProgress::AwaitingReply(call, deciding) => {
            let answer = deciding.await;
            call.end(answer)
        }
        other => other,
    };
    if let CallProgress::HoldingReply(mut respond, answer) = step {
        let wait = Duration::from_nanos(answer.delay.as_nanos());
        // All of it: whoever went on earlier would take what was promised to others.
        sleep(wait).await;
        send(&mut respond, answer.message);
        drop(answer.wait_permit);
    }
}
