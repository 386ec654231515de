//! RLQS streams: receives reports and sends assignments when they are due.
//!
//! Must not know: the content of reports and assignments.

use std::future::poll_fn;
use std::time::Duration;

use bytes::Bytes;
use h2::SendStream;
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::frame::{finish_frame, new_frame};
use super::methods::QuotaStream;
use super::status::{GrpcCode, GrpcStatus};
use super::streams::{RequestStream, StreamEnd, client_reset};
use crate::listen::ShutdownSignal;

/// How often due assignments are checked without another event.
const TICK: Duration = Duration::from_secs(1);
/// An assignment has to be sent within this time or not at all, because it counts as sent from when it was written.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Serves one stream until the client ends it or the server shuts down.
pub(super) async fn serve(
    requests: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    mut subscriber: Box<dyn QuotaStream>,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    let wake = subscriber.assignment_notifier();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Err(status) = send_due_assignments(stream, &mut *subscriber).await {
            return Some(Err(status));
        }
        let request = tokio::select! {
            request = requests.next() => request,
            () = wake.notified() => continue,
            _ = ticks.tick() => continue,
            () = client_reset(stream) => return None,
            () = stopping.wait() => {
                let status = GrpcStatus::new(GrpcCode::Unavailable, "the server is stopping");
                return Some(Err(status));
            }
        };
        match request {
            Ok(Some(message)) => {
                if let Err(reason) = subscriber.receive_report(&message) {
                    return Some(Err(GrpcStatus::new(GrpcCode::InvalidArgument, reason)));
                }
            }
            Ok(None) => return Some(Ok(())),
            Err(status) => return Some(Err(status)),
        }
        // Yield, so that a client that reports without a pause does not starve others.
        tokio::task::yield_now().await;
    }
}

/// Sends all due assignments. If the client does not read them in time, the stream ends: a late assignment would be worse than
/// none.
async fn send_due_assignments(
    stream: &mut SendStream<Bytes>,
    subscriber: &mut dyn QuotaStream,
) -> Result<(), GrpcStatus> {
    loop {
        let mut out = new_frame();
        if !subscriber.write_next_assignment(&mut out) {
            return Ok(());
        }
        let message = finish_frame(out);
        let slow = || {
            GrpcStatus::new(
                GrpcCode::ResourceExhausted,
                "the client does not read assignments in time",
            )
        };
        let room = timeout(SEND_TIMEOUT, reserve_capacity(stream, message.len())).await;
        if !room.unwrap_or(false) || stream.send_data(message, false).is_err() {
            return Err(slow());
        }
    }
}

/// Waits for flow-control capacity. Returns false if the stream has ended.
async fn reserve_capacity(stream: &mut SendStream<Bytes>, length: usize) -> bool {
    stream.reserve_capacity(length);
    while stream.capacity() < length {
        let more = poll_fn(|context| stream.poll_capacity(context)).await;
        if !matches!(more, Some(Ok(_))) {
            return false;
        }
    }
    true
}
