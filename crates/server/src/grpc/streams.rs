//! Calls with many answers: health that is watched, reflection, and quotas.
//!
//! Must not know: what is asked, how the connection is read.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::time::timeout;

use super::call::{Call, finish_stream};
use super::frame::MessageDecoder;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, GrpcMethod};
use super::quota_stream;
use super::status::{GrpcCode, GrpcStatus};
use crate::listen::ShutdownSignal;

/// Questions that one stream may ask: tools ask a handful.
const MOST_QUESTIONS: usize = 1_000;
/// So many times longer than a question a report may be.
const REPORT: usize = 16;

/// One call, until whoever made it has had enough or the server stops.
pub(super) async fn serve<S: GrpcHandler>(
    call: Call,
    service: Arc<S>,
    limits: GrpcLimits,
    stopping: ShutdownSignal,
) {
    let Some((method, body, mut stream)) = call.into_stream() else {
        return;
    };
    let longest = match method {
        // A report is about all buckets of a client.
        GrpcMethod::StreamQuotas => limits.max_message_len.saturating_mul(REPORT),
        _ => limits.max_message_len,
    };
    let mut questions = RequestStream {
        body,
        inbox: MessageDecoder::new(longest),
    };
    let served = match method {
        GrpcMethod::HealthWatch => {
            watch(&mut questions, &mut stream, &*service, &limits, &stopping).await
        }
        GrpcMethod::StreamQuotas => match service.open_quota_stream() {
            Ok(subscriber) => {
                quota_stream::serve(&mut questions, &mut stream, subscriber, &stopping).await
            }
            Err(status) => Some(Err(status)),
        },
        _ => reflect(&mut questions, &mut stream, &*service, &stopping).await,
    };
    if let Some(how) = served {
        finish_stream(&mut stream, how);
    }
}

/// What a client sends on its stream.
pub(super) struct RequestStream {
    body: RecvStream,
    inbox: MessageDecoder,
}

impl RequestStream {
    /// The next message; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        loop {
            if let Some(message) = self.inbox.next_message()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| self.body.poll_data(context)).await {
                Some(Ok(bytes)) => {
                    // There is never more than a message and a window of it.
                    let _released = self.body.flow_control().release_capacity(bytes.len());
                    self.inbox.push(bytes);
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// Completes when whoever made the call has given it up.
pub(super) async fn client_reset(stream: &mut SendStream<Bytes>) {
    let _reason = poll_fn(|context| stream.poll_reset(context)).await;
}

/// How it ended, if anybody wants to know.
pub(super) type StreamEnd = Option<Result<(), GrpcStatus>>;

async fn watch<S: GrpcHandler>(
    questions: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    service: &S,
    limits: &GrpcLimits,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    let question = match timeout(limits.message_timeout, questions.next()).await {
        Ok(Ok(Some(question))) => question,
        Ok(Ok(None)) => Bytes::new(),
        Ok(Err(status)) => return Some(Err(status)),
        Err(_) => {
            let message = "the question was not complete in time";
            return Some(Err(GrpcStatus::new(GrpcCode::DeadlineExceeded, message)));
        }
    };
    let leaving = service.drain_signal().unwrap_or(stopping);
    for is_news in [false, true] {
        if is_news {
            tokio::select! {
                () = leaving.wait() => {}
                () = stopping.wait() => {}
                () = client_reset(stream) => return None,
            }
        }
        let answer = service.handle(GrpcMethod::HealthWatch, &question, stopping.is_triggered());
        match answer.await {
            Ok(answer) => stream.send_data(answer.message, false).ok()?,
            Err(status) => return Some(Err(status)),
        }
    }
    tokio::select! {
        () = stopping.wait() => {}
        () = client_reset(stream) => return None,
    }
    let status = GrpcStatus::new(GrpcCode::Unavailable, "the server is stopping");
    Some(Err(status))
}

async fn reflect<S: GrpcHandler>(
    questions: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    service: &S,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    for _ in 0..MOST_QUESTIONS {
        let question = tokio::select! {
            question = questions.next() => question,
            () = stopping.wait() => Ok(None),
        };
        let question = match question {
            Ok(Some(question)) => question,
            Ok(None) => return Some(Ok(())),
            Err(status) => return Some(Err(status)),
        };
        // Nobody gets answers faster than they are taken: the next question is read when there is room.
        let answer = service.handle(GrpcMethod::Reflect, &question, stopping.is_triggered());
        match answer.await {
            Ok(answer) => {
                stream.reserve_capacity(answer.message.len());
                poll_fn(|context| stream.poll_capacity(context))
                    .await?
                    .ok()?;
                stream.send_data(answer.message, false).ok()?;
            }
            Err(status) => return Some(Err(status)),
        }
    }
    let message = "there were too many questions on this stream";
    Some(Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message)))
}
