//! A long body that is counted in the byte budget of the process while its receiver has not taken it.
//!
//! hyper asks for the next piece when it has room, so the last piece is what waits for the receiver. A client or an upstream
//! that reads slowly holds its piece; if such pieces fill the budget, other long bodies pause, and end after a while. Must not
//! know: connections, protocols.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::{Instant, Sleep, sleep};

use super::limits::MAX_HEAD_LEN;
use crate::listen::{BufferBudget, BufferPriority, BufferReservation, BuffersFull, UNCOUNTED_LEN};

/// The largest piece that a connection usually delivers: its read buffer.
const PIECE_LEN: usize = MAX_HEAD_LEN;
/// How often a body that pauses looks for room, and how long it pauses at most.
const PAUSE: Duration = Duration::from_millis(20);
const MAX_PAUSE: Duration = Duration::from_secs(10);

/// A body whose last piece is reserved.
#[derive(Debug)]
pub(super) struct BudgetedBody<B> {
    body: B,
    reserved: BufferReservation,
    /// The next look at the budget, and when the body ends without room.
    pause: Option<(Pin<Box<Sleep>>, Instant)>,
}

/// Whether a body can be longer than what is not counted.
pub(super) fn is_long(body: &impl Body) -> bool {
    let most = body.size_hint().upper();
    !body.is_end_stream() && most.is_none_or(|len| len > UNCOUNTED_LEN as u64)
}

impl<B> BudgetedBody<B> {
    pub(super) fn new(body: B, budget: &Arc<BufferBudget>) -> Self {
        Self {
            body,
            reserved: BufferReservation::new(Arc::clone(budget), BufferPriority::Normal),
            pause: None,
        }
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
}

impl<B> Body for BudgetedBody<B>
where
    B: Body<Data = Bytes, Error: From<BuffersFull>> + Unpin,
{
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let this = &mut *self;
        // Releasing never fails.
        let _released = this.reserved.resize(0);
        if !ready!(this.poll_room(context)) {
            return Poll::Ready(Some(Err(BuffersFull.into())));
        }
        let frame = ready!(Pin::new(&mut this.body).poll_frame(context));
        if let Some(Ok(frame)) = &frame
            && let Some(data) = frame.data_ref()
        {
            // Another body may have taken the room just now. Then this piece is not counted.
            let _reserved = this.reserved.resize(data.len());
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::BodyExt as _;

    use super::*;

    /// A body that never ends.
    struct Pieces;

    impl Body for Pieces {
        type Data = Bytes;
        type Error = BuffersFull;

        fn poll_frame(
            self: Pin<&mut Self>,
            _context: &mut Context<'_>,
        ) -> Poll<Option<Result<Frame<Bytes>, BuffersFull>>> {
            let piece = Bytes::from_static(&[0; PIECE_LEN]);
            Poll::Ready(Some(Ok(Frame::data(piece))))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_pauses_while_another_holds_the_budget_and_ends_after_a_while() {
        // Three quarters of it are for bodies: one piece and a half.
        let budget = Arc::new(BufferBudget::new(2 * PIECE_LEN));
        let mut held = BudgetedBody::new(Pieces, &budget);
        assert!(held.frame().await.unwrap().is_ok());
        assert_eq!(budget.used(), PIECE_LEN);
        assert!(held.frame().await.unwrap().is_ok());
        assert_eq!(budget.used(), PIECE_LEN, "the piece before was taken");
        let mut paused = BudgetedBody::new(Pieces, &budget);
        let begun = Instant::now();
        assert_eq!(paused.frame().await.unwrap().unwrap_err(), BuffersFull);
        assert!(begun.elapsed() >= MAX_PAUSE);
        let mut paused = BudgetedBody::new(Pieces, &budget);
        let (next, ()) = tokio::join!(paused.frame(), async { drop(held) });
        assert!(next.unwrap().is_ok(), "there is room again");
    }
}
