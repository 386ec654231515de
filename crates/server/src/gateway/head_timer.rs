//! The time for the head of a request on an HTTP/1.1 connection, counted from when the response before it has ended, and the
//! shorter time after which an idle connection gives up its buffers.
//!
//! hyper has such a timer, and makes and drops one for every request; this one is made once. Must not know: requests, sockets.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use hyper::body::{Body, Frame, SizeHint};
use tokio::time::Instant;

use super::lazy_timer::LazyTimer;
use super::slow_stream::{record_handed_over, record_taken};

/// The value of `waiting_since` while a request is served.
const BUSY: u64 = u64::MAX;
/// How often a connection whose upload is held back looks whether its client has left. Nobody reads from it then.
const LOOK_INTERVAL: Duration = Duration::from_millis(250);

/// Whether a connection serves a request, or since when it waits for one.
#[derive(Debug)]
struct ConnectionActivity {
    /// When the wait for the first request began.
    opened: Instant,
    /// Nanoseconds since `opened`, or [`BUSY`].
    waiting_since: AtomicU64,
    /// The parts of the exchange that are not dropped.
    open: AtomicU32,
    /// Whether bytes of the response were not taken by the socket.
    has_unsent: AtomicBool,
    /// Whether the stream has to look whether the client has left, and whether it has.
    has_to_look: AtomicBool,
    is_gone: AtomicBool,
}

/// What a connection that can read nothing is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdleAction {
    /// Wait on.
    Wait,
    /// Give up the buffers, and wait on.
    Park,
    /// Close: a head has not arrived in time.
    Close,
    /// End the request: the client has left.
    Abort,
}

/// The time for the head of a request.
#[derive(Debug)]
pub(super) struct HeadTimer {
    timeout: Duration,
    /// The time after which a connection without a request gives up its buffers.
    park_after: Duration,
    activity: Arc<ConnectionActivity>,
    timer: LazyTimer,
    /// The value of `waiting_since` for which the connection was told to give up its buffers.
    parked: u64,
    /// When the stream looks next whether the client has left.
    next_look: Option<Instant>,
}

/// Tells the timer when requests begin.
#[derive(Clone, Debug)]
pub(super) struct RequestTracker(Arc<ConnectionActivity>);

/// A request and its response, until this and all its clones are dropped.
///
/// The body of the request holds one too: while it can be read, what arrives is not the head of the next request.
#[derive(Debug)]
pub(super) struct OpenExchange(Arc<ConnectionActivity>);

impl HeadTimer {
    /// The timer of a connection that waits for a request since then.
    pub(super) fn new(timeout: Duration, park_after: Duration, since: Instant) -> Self {
        Self {
            timeout,
            park_after,
            activity: Arc::new(ConnectionActivity {
                opened: since,
                waiting_since: AtomicU64::new(0),
                open: AtomicU32::new(0),
                has_unsent: AtomicBool::new(false),
                has_to_look: AtomicBool::new(false),
                is_gone: AtomicBool::new(false),
            }),
            timer: LazyTimer::default(),
            parked: BUSY,
            next_look: None,
        }
    }

    pub(super) fn tracker(&self) -> RequestTracker {
        RequestTracker(Arc::clone(&self.activity))
    }

    /// Since when a request is awaited; now, if one is served.
    pub(super) fn waiting_since(&self) -> Instant {
        match self.activity.waiting_since.load(Ordering::Relaxed) {
            BUSY => Instant::now(),
            since => self.activity.opened + Duration::from_nanos(since),
        }
    }

    pub(super) fn has_unsent(&self) -> bool {
        self.activity.has_unsent.load(Ordering::Relaxed)
    }

    /// Call it while nothing can be read. The task is woken when there is something else to do, or earlier. `Park` is returned once
    /// for each pause between two requests, if the connection can give up its buffers.
    pub(super) fn next_action(&mut self, can_park: bool, context: &mut Context<'_>) -> IdleAction {
        let since = match self.activity.waiting_since.load(Ordering::Relaxed) {
            BUSY => return self.look_for_client(context),
            since => since,
        };
        let start = self.activity.opened + Duration::from_nanos(since);
        if can_park && self.parked != since && !self.has_unsent() {
            let deadline = start + self.park_after.min(self.timeout);
            if !self.timer.has_passed(deadline, context) {
                return IdleAction::Wait;
            }
            self.parked = since;
            return IdleAction::Park;
        }
        match self.timer.has_passed(start + self.timeout, context) {
            true => IdleAction::Close,
            false => IdleAction::Wait,
        }
    }
}

impl HeadTimer {
    /// While the body of a request can be read and hyper does not read it, the stream looks now and then.
    fn look_for_client(&mut self, context: &mut Context<'_>) -> IdleAction {
        if self.activity.is_gone.load(Ordering::Relaxed) {
            return IdleAction::Abort;
        }
        // One part is the response, another one the body.
        if self.activity.open.load(Ordering::Relaxed) < 2 {
            self.next_look = None;
            return IdleAction::Wait;
        }
        let next = self.next_look;
        let next = next.unwrap_or_else(|| Instant::now() + LOOK_INTERVAL);
        self.next_look = Some(next);
        if self.timer.has_passed(next, context) {
            self.next_look = None;
            self.activity.has_to_look.store(true, Ordering::Relaxed);
            // hyper asks the stream again.
            context.waker().wake_by_ref();
        }
        IdleAction::Wait
    }
}

impl RequestTracker {
    /// Whether the stream has to look whether the client has left. Once for each time.
    pub(super) fn has_to_look(&self) -> bool {
        self.0.has_to_look.load(Ordering::Relaxed)
            && self.0.has_to_look.swap(false, Ordering::Relaxed)
    }

    /// Records that the client has left.
    pub(super) fn set_gone(&self) {
        self.0.is_gone.store(true, Ordering::Relaxed);
    }

    /// Records that a head has arrived.
    pub(super) fn begin(&self) -> OpenExchange {
        self.0.waiting_since.store(BUSY, Ordering::Relaxed);
        self.0.open.fetch_add(1, Ordering::AcqRel);
        OpenExchange(Arc::clone(&self.0))
    }

    /// Records whether bytes were written that are not flushed.
    pub(super) fn set_unsent(&self, is_unsent: bool) {
        self.0.has_unsent.store(is_unsent, Ordering::Relaxed);
    }
}

impl Clone for OpenExchange {
    fn clone(&self) -> Self {
        self.0.open.fetch_add(1, Ordering::AcqRel);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for OpenExchange {
    fn drop(&mut self) {
        if self.0.open.fetch_sub(1, Ordering::AcqRel) != 1 {
            return;
        }
        let since = u64::try_from(self.0.opened.elapsed().as_nanos());
        let since = since.unwrap_or(BUSY).min(BUSY - 1);
        self.0.waiting_since.store(since, Ordering::Relaxed);
    }
}

/// The body of a response. When it is dropped, the exchange has ended.
#[derive(Debug)]
pub(super) struct TrackedBody<B> {
    body: B,
    /// `None` for a stream of HTTP/2.
    exchange: Option<OpenExchange>,
}

impl<B> TrackedBody<B> {
    pub(super) const fn new(body: B, exchange: Option<OpenExchange>) -> Self {
        Self { body, exchange }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for TrackedBody<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        if self.exchange.is_some() {
            return Pin::new(&mut self.body).poll_frame(context);
        }
        record_taken();
        let frame = Pin::new(&mut self.body).poll_frame(context);
        if let Poll::Ready(Some(Ok(frame))) = &frame {
            record_handed_over(frame.data_ref().map_or(0, Bytes::len));
        }
        frame
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
    use std::future::poll_fn;
    use std::task::Waker;

    use tokio::time::advance;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// What happens next, and when.
    async fn next(timer: &mut HeadTimer) -> (IdleAction, Duration) {
        let begun = Instant::now();
        let action = poll_fn(|context| match timer.next_action(true, context) {
            IdleAction::Wait => Poll::Pending,
            action => Poll::Ready(action),
        });
        (action.await, begun.elapsed())
    }

    fn look(timer: &mut HeadTimer) -> IdleAction {
        timer.next_action(true, &mut Context::from_waker(Waker::noop()))
    }

    #[tokio::test(start_paused = true)]
    async fn the_time_counts_from_the_end_of_the_response_before() {
        let mut timer = HeadTimer::new(30 * SECOND, SECOND, Instant::now());
        let tracker = timer.tracker();
        assert_eq!(look(&mut timer), IdleAction::Wait);
        let exchange = tracker.begin();
        advance(100 * SECOND).await;
        assert_eq!(look(&mut timer), IdleAction::Wait, "a request is served");
        let body_of_the_request = exchange.clone();
        drop(exchange);
        advance(100 * SECOND).await;
        assert_eq!(look(&mut timer), IdleAction::Wait, "its body can be read");
        drop(body_of_the_request);
        assert_eq!(next(&mut timer).await, (IdleAction::Park, SECOND));
        let left = 30 * SECOND - SECOND;
        assert_eq!(next(&mut timer).await, (IdleAction::Close, left));
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_that_leaves_during_its_upload_is_noticed() {
        let mut timer = HeadTimer::new(30 * SECOND, SECOND, Instant::now());
        let tracker = timer.tracker();
        let exchange = tracker.begin();
        advance(SECOND).await;
        assert_eq!(look(&mut timer), IdleAction::Wait);
        advance(SECOND).await;
        assert_eq!(look(&mut timer), IdleAction::Wait);
        assert!(!tracker.has_to_look(), "hyper reads when there is no body");
        let _body_of_the_request = exchange.clone();
        assert_eq!(look(&mut timer), IdleAction::Wait);
        assert!(!tracker.has_to_look());
        advance(LOOK_INTERVAL).await;
        assert_eq!(look(&mut timer), IdleAction::Wait);
        assert!(tracker.has_to_look() && !tracker.has_to_look());
        tracker.set_gone();
        assert_eq!(look(&mut timer), IdleAction::Abort);
    }

    #[tokio::test(start_paused = true)]
    async fn every_pause_parks_once() {
        let mut timer = HeadTimer::new(30 * SECOND, SECOND, Instant::now());
        let tracker = timer.tracker();
        for _ in 0..3 {
            advance(SECOND).await;
            drop(tracker.begin());
            assert_eq!(next(&mut timer).await, (IdleAction::Park, SECOND));
            advance(SECOND).await;
            assert_eq!(look(&mut timer), IdleAction::Wait);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_with_unsent_bytes_keeps_its_buffers() {
        let mut timer = HeadTimer::new(30 * SECOND, SECOND, Instant::now());
        let tracker = timer.tracker();
        tracker.set_unsent(true);
        assert_eq!(next(&mut timer).await, (IdleAction::Close, 30 * SECOND));
        tracker.set_unsent(false);
        assert_eq!(next(&mut timer).await.0, IdleAction::Park);
    }
}
