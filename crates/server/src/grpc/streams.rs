//! Calls with many answers: health that is watched, reflection, and quotas.
//!
//! Must not know: what is asked, how the connection is read.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::time::timeout;

use super::call::{Call, finish};
use super::frame::Inbox;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, Method};
use super::quotas;
use super::status::{Code, Status};
use crate::listen::Stopping;

/// Questions that one stream may ask: tools ask a handful.
const MOST_QUESTIONS: usize = 1_000;
/// So many times longer than a question a report may be.
const REPORT: usize = 16;

/// One call, until whoever made it has had enough or the server stops.
pub(super) async fn serve<S: GrpcHandler>(
    call: Call,
    service: Arc<S>,
    limits: GrpcLimits,
    stopping: Stopping,
) {
    let Some((method, body, mut stream)) = call.into_stream() else {
        return;
    };
    let longest = match method {
        // A report is about all buckets of a client.
        Method::StreamQuotas => limits.message.saturating_mul(REPORT),
        _ => limits.message,
    };
    let mut questions = Questions {
        body,
        inbox: Inbox::new(longest),
    };
    let served = match method {
        Method::HealthWatch => {
            watch(&mut questions, &mut stream, &*service, &limits, &stopping).await
        }
        Method::StreamQuotas => match service.subscribe() {
            Ok(subscriber) => {
                quotas::serve(&mut questions, &mut stream, subscriber, &stopping).await
            }
            Err(status) => Some(Err(status)),
        },
        _ => reflect(&mut questions, &mut stream, &*service, &stopping).await,
    };
    if let Some(how) = served {
        finish(&mut stream, how);
    }
}

/// What a client sends on its stream.
pub(super) struct Questions {
    body: RecvStream,
    inbox: Inbox,
}

impl Questions {
    /// The next message; nothing at the end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Status> {
        loop {
            if let Some(message) = self.inbox.message()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| self.body.poll_data(context)).await {
                Some(Ok(bytes)) => {
                    // There is never more than a message and a window of it.
                    let _released = self.body.flow_control().release_capacity(bytes.len());
                    self.inbox.add(bytes);
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
}

/// Completes when whoever made the call has given it up.
pub(super) async fn given_up(stream: &mut SendStream<Bytes>) {
    let _reason = poll_fn(|context| stream.poll_reset(context)).await;
}

/// How it ended, if anybody wants to know.
pub(super) type Served = Option<Result<(), Status>>;

async fn watch<S: GrpcHandler>(
    questions: &mut Questions,
    stream: &mut SendStream<Bytes>,
    service: &S,
    limits: &GrpcLimits,
    stopping: &Stopping,
) -> Served {
    let question = match timeout(limits.body, questions.next()).await {
        Ok(Ok(Some(question))) => question,
        Ok(Ok(None)) => Bytes::new(),
        Ok(Err(status)) => return Some(Err(status)),
        Err(_) => {
            let message = "the question was not complete in time";
            return Some(Err(Status::new(Code::DeadlineExceeded, message)));
        }
    };
    let leaving = service.leaving().unwrap_or(stopping);
    for is_news in [false, true] {
        if is_news {
            tokio::select! {
                () = leaving.wait() => {}
                () = stopping.wait() => {}
                () = given_up(stream) => return None,
            }
        }
        let answer = service.answer(Method::HealthWatch, &question, stopping.is_said());
        match answer.await {
            Ok(answer) => stream.send_data(answer.message, false).ok()?,
            Err(status) => return Some(Err(status)),
        }
    }
    tokio::select! {
        () = stopping.wait() => {}
        () = given_up(stream) => return None,
    }
    let status = Status::new(Code::Unavailable, "the server is stopping");
    Some(Err(status))
}

async fn reflect<S: GrpcHandler>(
    questions: &mut Questions,
    stream: &mut SendStream<Bytes>,
    service: &S,
    stopping: &Stopping,
) -> Served {
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
        let answer = service.answer(Method::Reflect, &question, stopping.is_said());
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
    Some(Err(Status::new(Code::ResourceExhausted, message)))
}
