//! Streaming calls: health watches, reflection and quota streams.
//!
//! Must not know: services, how the connection is read.

use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use h2::{RecvStream, SendStream};

use super::call::{Call, finish_stream};
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
    let Some((method, body, mut stream)) = call.into_stream() else {
        return;
    };
    let max_len = match method {
        // A report covers all buckets of a client.
        GrpcMethod::StreamQuotas => limits.max_message_len.saturating_mul(REPORT_LEN_FACTOR),
        _ => limits.max_message_len,
    };
    let mut requests = RequestStream {
        body,
        decoder: MessageDecoder::new(max_len),
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
        _ => serve_reflection(&mut requests, &mut stream, &*service, &stopping).await,
    };
    if let Some(status) = served {
        finish_stream(&mut stream, status);
    }
}

/// The messages that a client sends on its stream.
pub(super) struct RequestStream {
    body: RecvStream,
    decoder: MessageDecoder,
}

impl RequestStream {
    /// The next message, or `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, GrpcStatus> {
        loop {
            if let Some(message) = self.decoder.next_message()? {
                return Ok(Some(message));
            }
            match poll_fn(|context| self.body.poll_data(context)).await {
                Some(Ok(bytes)) => {
                    // At most one message and one window are buffered.
                    let _released = self.body.flow_control().release_capacity(bytes.len());
                    self.decoder.push(bytes);
                }
                Some(Err(_)) | None => return Ok(None),
            }
        }
    }
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
        Err(_) => {
            let message = "the request was not complete in time";
            return Some(Err(GrpcStatus::new(GrpcCode::DeadlineExceeded, message)));
        }
    };
    let leaving = service.drain_signal().unwrap_or(stopping);
    for is_change in [false, true] {
        if is_change {
            tokio::select! {
                () = leaving.wait() => {}
                () = stopping.wait() => {}
                () = client_reset(stream) => return None,
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
    }
    let status = GrpcStatus::new(GrpcCode::Unavailable, "the server is stopping");
    Some(Err(status))
}

async fn serve_reflection<S: GrpcHandler>(
    requests: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    service: &S,
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
                poll_fn(|context| stream.poll_capacity(context))
                    .await?
                    .ok()?;
                stream.send_data(answer.message, false).ok()?;
            }
            Err(status) => return Some(Err(status)),
        }
    }
    let message = "there were too many requests on this stream";
    Some(Err(GrpcStatus::new(GrpcCode::ResourceExhausted, message)))
}
