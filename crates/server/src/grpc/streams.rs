//! Streaming calls: health watches, reflection and quota streams.
//!
//! Must not know: services, how the connection is read.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::time::{Instant, timeout};

use super::call::{Call, finish_stream};
use super::call_buffers::CallBuffers;
use super::frame::MessageDecoder;
use super::limits::GrpcLimits;
use super::methods::{GrpcHandler, GrpcMethod};
use super::quota_stream;
use super::status::{GrpcCode, GrpcStatus};
use crate::listen::{ShutdownSignal, confirmed_timeout};

/// Requests on one reflection stream. Tools send a handful.
const MAX_REQUESTS: usize = 1_000;
/// A quota report may be this many times longer than other messages.
const REPORT_LEN_FACTOR: usize = 16;

/// Serves one call until the client ends it or the server shuts down.
pub(super) async fn serve<S: GrpcHandler>(
    call: Call,
    service: Arc<S>,
    limits: GrpcLimits,
    stopping: ShutdownSignal,
) {
    let method = call.method();
    let Some((mut requests, mut stream)) = call.into_stream(&limits) else {
        return;
    };
    let served = match method {
        GrpcMethod::HealthWatch => {
            serve_health_watch(&mut requests, &mut stream, &*service, &limits, &stopping).await
        }
        GrpcMethod::StreamQuotas => match service.open_quota_stream() {
            Ok(subscriber) => {
                quota_stream::serve(&mut requests, &mut stream, subscriber, &stopping).await
            }
            Err(status) => Some(Err(status)),
        },
        _ => serve_reflection(&mut requests, &mut stream, &*service, &limits, &stopping).await,
    };
    if let Some(status) = served {
        finish_stream(&mut stream, status);
    }
}

/// The messages that a client sends on its stream.
pub(super) struct RequestStream {
    body: RecvStream,
    decoder: MessageDecoder,
    /// The reservation of an incomplete message.
    buffers: CallBuffers,
    message_timeout: Duration,
    /// When an incomplete message has to be complete.
    deadline: Option<Instant>,
}

impl RequestStream {
    pub(super) fn new(
        method: GrpcMethod,
        body: RecvStream,
        buffers: CallBuffers,
        limits: &GrpcLimits,
    ) -> Self {
        let max_len = match method {
            // A report covers all buckets of a client.
            GrpcMethod::StreamQuotas => limits.max_message_len.saturating_mul(REPORT_LEN_FACTOR),
            _ => limits.max_message_len,
        };
        Self {
            body,
            decoder: MessageDecoder::new(max_len),
            buffers,
            message_timeout: limits.message_timeout,
            deadline: None,
        }
    }

    /// The next message, or `None` at the end of the stream. Cancel safe.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                self.deadline = None;
                self.buffers.release();
                return Ok(Some(message));
            }
            let data = match self.await_rest()? {
                None => poll_fn(|context| self.body.poll_data(context)).await,
                Some(time) => {
                    let data = poll_fn(|context| self.body.poll_data(context));
                    confirmed_timeout(time, data)
                        .await
                        .map_err(|_elapsed| late_message())?
                }
            };
            match data {
                Some(Ok(bytes)) => {
                    // At most one message and one window are buffered.
                    let _released = self.body.flow_control().release_capacity(bytes.len());
                    self.decoder.push(bytes);
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }

    /// Reserves an incomplete message, and returns the time that the client has to complete it. `None` if there is none.
    fn await_rest(&mut self) -> Result<Option<Duration>, GrpcStatus> {
        if self.decoder.is_empty() {
            return Ok(None);
        }
        let (held, declared) = self.decoder.detach();
        self.buffers.resize(held, declared)?;
        let now = Instant::now();
        let time = self.buffers.connection().timeout(self.message_timeout);
        let deadline = *self.deadline.get_or_insert_with(|| now + time);
        Ok(Some(deadline.saturating_duration_since(now)))
    }

    /// Completes with an error when the client sends a message. After the end of the stream it never completes.
    async fn extra_message(&mut self) -> GrpcStatus {
        match self.next().await {
            Ok(None) => std::future::pending().await,
            Ok(Some(_)) => {
                let message = "the call has more than one message";
                GrpcStatus::new(GrpcCode::InvalidArgument, message)
            }
            Err(status) => status,
        }
    }
}

fn late_message() -> GrpcStatus {
    let message = "the request was not complete in time";
    GrpcStatus::new(GrpcCode::DeadlineExceeded, message)
}

/// Completes when the client resets the stream.
pub(super) async fn client_reset(stream: &mut SendStream<Bytes>) {
    let _reason = poll_fn(|context| stream.poll_reset(context)).await;
}

/// The status to end the stream with; `None` if the client has reset it.
pub(super) type StreamEnd = Option<Result<(), GrpcStatus>>;

async fn serve_health_watch<S: GrpcHandler>(
    requests: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    service: &S,
    limits: &GrpcLimits,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    let request = match confirmed_timeout(limits.message_timeout, requests.next()).await {
        Ok(Ok(Some(request))) => request,
        Ok(Ok(None)) => Bytes::new(),
        Ok(Err(status)) => return Some(Err(status)),
        Err(_) => return Some(Err(late_message())),
    };
    let leaving = service.drain_signal().unwrap_or(stopping);
    for is_change in [false, true] {
        if is_change {
            tokio::select! {
                () = leaving.wait() => {}
                () = stopping.wait() => {}
                () = client_reset(stream) => return None,
                // Otherwise nobody would read what the client sends on.
                status = requests.extra_message() => return Some(Err(status)),
            }
        }
        let answer = service.handle(GrpcMethod::HealthWatch, &request, stopping.is_triggered());
        match answer.await {
            Ok(answer) => stream.send_data(answer.message, false).ok()?,
            Err(status) => return Some(Err(status)),
        }
    }
    tokio::select! {
        () = stopping.wait() => {}
        () = client_reset(stream) => return None,
        status = requests.extra_message() => return Some(Err(status)),
    }
    let status = GrpcStatus::new(GrpcCode::Unavailable, "the server is stopping");
    Some(Err(status))
}

async fn serve_reflection<S: GrpcHandler>(
    requests: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    service: &S,
    limits: &GrpcLimits,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    for _ in 0..MAX_REQUESTS {
        let request = tokio::select! {
            request = requests.next() => request,
            () = stopping.wait() => Ok(None),
        };
        let request = match request {
            Ok(Some(request)) => request,
            Ok(None) => return Some(Ok(())),
            Err(status) => return Some(Err(status)),
        };
        // The next request is read only when there is room for this reply, so replies do not pile up.
        let answer = service.handle(GrpcMethod::Reflect, &request, stopping.is_triggered());
        match answer.await {
            Ok(answer) => {
                stream.reserve_capacity(answer.message.len());
                let room = poll_fn(|context| stream.poll_capacity(context));
                timeout(limits.listener.write_timeout, room)
                    .await
                    .ok()??
                    .ok()?;
                stream.send_data(answer.message, false).ok()?;
            }
            Err(status) => return Some(Err(status)),
        }
    }
    let message = "there were too many requests on this stream";
    Some(Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message)))
}
