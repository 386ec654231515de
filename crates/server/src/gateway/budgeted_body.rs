//! A long response body that is counted in the byte budget of the process while the client has not taken it.
//!
//! hyper asks for the next piece when it has room, so the last piece is what waits for the client. A client that reads
//! slowly holds its piece; if such pieces fill the budget, other long bodies pause, and end after a while. Must not know:
//! connections, protocols.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body as _, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::limits::MAX_HEAD_LEN;
use super::upstream::{UpstreamBody, UpstreamBodyError};
use crate::listen::{BufferBudget, BufferPriority, BufferReservation, UNCOUNTED_LEN};

/// The largest piece that an upstream connection usually delivers: its read buffer.
const PIECE_LEN: usize = MAX_HEAD_LEN;
/// How often a body that pauses looks for room, and how long it pauses at most.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// A body whose last piece is reserved.
#[derive(Debug)]
pub(super) struct BudgetedBody {
    body: UpstreamBody,
    reserved: BufferReservation,
    /// The next look at the budget, and when the body ends without room.
    pause: Option<(Pin<Box<Sleep>>, Instant)>,
}

/// Whether a body can be longer than what is not counted.
pub(super) fn is_long(body: &UpstreamBody) -> bool {
    let most = body.size_hint().upper();
    !body.is_end_stream() && most.is_none_or(|len| len > UNCOUNTED_LEN as u64)
}

impl BudgetedBody {
    pub(super) fn new(body: UpstreamBody, budget: &Arc<BufferBudget>) -> Self {
        Self {
            body,
            reserved: BufferReservation::new(Arc::clone(budget), BufferPriority::Normal),
            pause: None,
        }
    }

    pub(super) const fn body(&self) -> &UpstreamBody {
        &self.body
    }

    pub(super) fn poll_frame(
        &mut self,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, UpstreamBodyError>>> {
        // Releasing never fails.
        let _released = self.reserved.resize(0);
        if !ready!(self.poll_room(context)) {
            return Poll::Ready(Some(Err(UpstreamBodyError::BuffersFull)));
        }
        let frame = ready!(Pin::new(&mut self.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            // Another body may have taken the room just now. Then this piece is not counted.
            let _reserved = self.reserved.resize(data.len());
        }
        Poll::Ready(frame)
    }

    /// Waits for room. Ready with `false` if there was none for too long.
    fn poll_room(&mut self, context: &mut Context<'_>) -> Poll<bool> {
        while !self.reserved.fits(PIECE_LEN) {
            let now = Instant::now();
            let (sleep, deadline) = self
                .pause
                .get_or_insert_with(|| (Box::pin(sleep(PAUSE)), now + MAX_PAUSE));
            ready!(sleep.as_mut().poll(context));
            if now >= *deadline {
                return Poll::Ready(false);
            }
            sleep.as_mut().reset(now + PAUSE);
        }
        self.pause = None;
        Poll::Ready(true)
    }

    pub(super) fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
