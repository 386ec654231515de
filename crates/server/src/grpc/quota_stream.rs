//! Streams of quotas: reports are taken in as they come, and assignments sent whenever there are any.
//!
//! Must not know: what is reported or assigned.

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

/// How often time is looked at where nothing else happens.
const TICK: Duration = Duration::from_secs(1);
/// What was taken to be sent must be sent within this, or not at all: it counts as sent from when it was taken.
const ROOM_WITHIN: Duration = Duration::from_secs(1);

/// One stream, until whoever made it has had enough or the server stops.
pub(super) async fn serve(
    questions: &mut RequestStream,
    stream: &mut SendStream<Bytes>,
    mut subscriber: Box<dyn QuotaStream>,
    stopping: &ShutdownSignal,
) -> StreamEnd {
    let wake = subscriber.assignment_notifier();
    let mut ticks = interval(TICK);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        if let Err(status) = tell(stream, &mut *subscriber).await {
            return Some(Err(status));
        }
        let question = tokio::select! {
            question = questions.next() => question,
            () = wake.notified() => continue,
            _ = ticks.tick() => continue,
            () = client_reset(stream) => return None,
            () = stopping.wait() => {
                let status = GrpcStatus::new(GrpcCode::Unavailable, "the server is stopping");
                return Some(Err(status));
            }
        };
        match question {
            Ok(Some(message)) => {
                if let Err(why) = subscriber.receive_report(&message) {
                    return Some(Err(GrpcStatus::new(GrpcCode::InvalidArgument, why)));
                }
            }
            Ok(None) => return Some(Ok(())),
            Err(status) => return Some(Err(status)),
        }
        // Who reports without a pause is heard like everybody else, and not instead of them.
        tokio::task::yield_now().await;
    }
}

/// Sends all that is due. Whoever does not take it in time is given up: it then gets none of it, and a message that is late
/// would be worse than none.
async fn tell(
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
                "assignments are not taken in time",
            )
        };
        let room = timeout(ROOM_WITHIN, room_for(stream, message.len())).await;
        if !room.unwrap_or(false) || stream.send_data(message, false).is_err() {
            return Err(slow());
        }
    }
}

/// Waits until there is room; answers whether there ever will be.
async fn room_for(stream: &mut SendStream<Bytes>, length: usize) -> bool {
    stream.reserve_capacity(length);
    while stream.capacity() < length {
        let more = poll_fn(|context| stream.poll_capacity(context)).await;
        if !matches!(more, Some(Ok(_))) {
            return false;
        }
    }
    true
}
