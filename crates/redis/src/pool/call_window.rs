//! How many calls are on the way to one server at a time. Further calls wait here, in order.
//!
//! A server that has more to do than it can gets slower with every call that it is sent, until each of them misses its deadline
//! and a healthy server looks dead. So a call that waits here has not been sent, its deadline has not begun, and the number of
//! sent calls follows the time that replies take: it grows while replies are about as fast as the fastest ones, and shrinks
//! while they are much slower. If no reply arrives at all, waiting calls fail with the sent ones. Must not know: servers, what
//! is in a call.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{Notify, Semaphore, SemaphorePermit};
use tokio::time::Instant;
use tollgate_store::{StoreError, StoreErrorKind};

/// Calls on the way at first. One server is busy with a few; the others are there when it is done with them.
const INITIAL_SIZE: usize = 32;
/// The window never gets smaller, so that it can find out that the server is fast again.
const MIN_SIZE: usize = 4;
/// A decision waits at most this many of its deadlines for its calls to be sent.
const MAX_WAIT_DEADLINES: u32 = 10;

/// The time that one decision may take, over all of its calls. Time that a call waits here before it is sent does not count.
#[derive(Debug)]
pub(crate) struct CallDeadline {
    until: Instant,
    max_wait: Duration,
}

impl CallDeadline {
    /// A deadline after this much time from now.
    pub(crate) fn new(after: Duration) -> Self {
        Self {
            until: Instant::now() + after,
            max_wait: after.saturating_mul(MAX_WAIT_DEADLINES),
        }
    }

    /// When the time of the calls that are sent is over.
    pub(crate) const fn until(&self) -> Instant {
        self.until
    }

    fn add_wait(&mut self, waited: Duration) {
        self.until += waited;
        self.max_wait = self.max_wait.saturating_sub(waited);
    }
}

/// The calls on the way to one server, and those that wait to be sent.
#[derive(Debug)]
pub(crate) struct CallWindow {
    free: Semaphore,
    size: AtomicUsize,
    max_size: usize,
    waiting: AtomicUsize,
    deadline: Duration,
    /// About the shortest time of a reply lately, in nanoseconds.
    shortest: AtomicU64,
    started: Instant,
    /// When the latest reply arrived, in nanoseconds since `started`.
    last_reply: AtomicU64,
    /// No reply arrives any more: waiting calls need not wait on.
    stalled: Notify,
}

/// The permission to send one call.
#[derive(Debug)]
pub(crate) struct WindowPermit<'a> {
    window: &'a CallWindow,
    permit: SemaphorePermit<'a>,
    sent_at: Instant,
}

impl CallWindow {
    /// A window of at most `max_size` calls that are answered within `deadline`.
    pub(crate) fn new(max_size: usize, deadline: Duration) -> Self {
        let max_size = max_size.max(1);
        let size = INITIAL_SIZE.min(max_size);
        Self {
            free: Semaphore::new(size),
            size: AtomicUsize::new(size),
            max_size,
            waiting: AtomicUsize::new(0),
            deadline,
            shortest: AtomicU64::new(u64::MAX),
            started: Instant::now(),
            last_reply: AtomicU64::new(0),
            stalled: Notify::new(),
        }
    }

    /// The number of calls that wait to be sent.
    pub(crate) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Waits until a call may be sent, and extends its deadline by that time.
    ///
    /// # Errors
    ///
    /// The server does not reply, or has too much to do. The call was not sent.
    pub(crate) async fn enter(
        &self,
        deadline: &mut CallDeadline,
    ) -> Result<WindowPermit<'_>, StoreError> {
        let permit = match self.free.try_acquire() {
            Ok(permit) => permit,
            Err(_) => {
                let since = Instant::now();
                // Boxed, so that the futures of calls that are sent at once stay small.
                let permit = Box::pin(self.wait(deadline.max_wait)).await?;
                deadline.add_wait(since.elapsed());
                permit
            }
        };
        Ok(WindowPermit {
            window: self,
            permit,
            sent_at: Instant::now(),
        })
    }

    async fn wait(&self, max_wait: Duration) -> Result<SemaphorePermit<'_>, StoreError> {
        let _counted = WaitingCall::count(self);
        let mut stalled = pin!(self.stalled.notified());
        stalled.as_mut().enable();
        let mut acquired = pin!(self.free.acquire());
        let acquired = poll_fn(|context| {
            // First: the permits of calls that got no reply are not for the waiting ones.
            if stalled.as_mut().poll(context).is_ready() {
                return Poll::Ready(Err(busy("not sent, because the server does not reply")));
            }
            let permit = acquired.as_mut().poll(context);
            permit.map_err(|_| busy("the store was closed"))
        });
        let overloaded = "not sent in time, because the server has too much to do";
        let acquired = tokio::time::timeout(max_wait, acquired).await;
        acquired.unwrap_or_else(|_| Err(busy(overloaded)))
    }

    fn grow(&self) {
        let size = self.size.load(Ordering::Relaxed);
        // Two replies at once may grow it by one too little, which the next one makes up for.
        let grown = size.saturating_add(1);
        if size < self.max_size
            && self
                .size
                .compare_exchange(size, grown, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            self.free.add_permits(1);
        }
    }

    fn shrink(&self, permit: SemaphorePermit<'_>) {
        let size = self.size.load(Ordering::Relaxed);
        let shrunk = size.saturating_sub(1);
        if size > MIN_SIZE
            && self
                .size
                .compare_exchange(size, shrunk, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
        {
            permit.forget();
        }
    }

    /// The shortest time of a reply, with this one. It rises slowly, in case the way to the server became longer, but not while
    /// calls wait for each other: then replies are slow because of us.
    fn update_shortest(&self, took: u64) -> u64 {
        let shortest = self.shortest.load(Ordering::Relaxed);
        let is_unhindered = self.waiting() == 0 || self.size.load(Ordering::Relaxed) <= MIN_SIZE;
        let next = match took.checked_sub(shortest) {
            Some(longer) if is_unhindered => shortest.saturating_add(longer >> 8),
            Some(_) => return shortest,
            None => took,
        };
        self.shortest.store(next, Ordering::Relaxed);
        next
    }
}

impl WindowPermit<'_> {
    /// The call has ended; `failure` is what it failed with.
    pub(crate) fn complete(self, failure: Option<StoreErrorKind>) {
        let Self {
            window,
            permit,
            sent_at,
        } = self;
        let now = Instant::now();
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let since_start = nanos(now.duration_since(window.started));
        let deadline = nanos(window.deadline);
        match failure {
            None => {
                window.last_reply.store(since_start, Ordering::Relaxed);
                let took = nanos(now.duration_since(sent_at));
                let shortest = window.update_shortest(took);
                if took > shortest.saturating_add(deadline / 2) {
                    window.shrink(permit);
                } else if took < shortest.saturating_add(deadline / 4) && window.waiting() > 0 {
                    window.grow();
                }
            }
            // The server replied, or was not asked.
            Some(
                StoreErrorKind::BadRequest
                | StoreErrorKind::Busy
                | StoreErrorKind::Refused
                | StoreErrorKind::Unreachable,
            ) => {}
            Some(_) => {
                window.shrink(permit);
                let last_reply = window.last_reply.load(Ordering::Relaxed);
                if since_start.saturating_sub(last_reply) >= deadline {
                    window.stalled.notify_waiters();
                }
            }
        }
    }
}

/// Counts a waiting call until it is sent, fails or is dropped.
struct WaitingCall<'a>(&'a CallWindow);

impl<'a> WaitingCall<'a> {
    fn count(window: &'a CallWindow) -> Self {
        window.waiting.fetch_add(1, Ordering::Relaxed);
        Self(window)
    }
}

impl Drop for WaitingCall<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}

fn busy(detail: &'static str) -> StoreError {
    StoreError::new(StoreErrorKind::Busy, detail)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use tokio::task::JoinSet;

    const DEADLINE: Duration = Duration::from_millis(150);

    /// Lets simulated time pass.
    async fn elapse(time: Duration) {
        let never = std::future::pending::<()>();
        let _elapsed = tokio::time::timeout(time, never).await;
    }

    /// A server that replies to one call after the other, each after `service`. Returns how many of `callers` calls at once miss
    /// the deadline, and how many were refused.
    async fn run(callers: usize, service: Duration, size: usize) -> (usize, usize) {
        let window = Arc::new(CallWindow::new(4_096, DEADLINE));
        if size > INITIAL_SIZE {
            window.free.add_permits(size - INITIAL_SIZE);
            window.size.store(size, Ordering::Relaxed);
        }
        let server = Arc::new(tokio::sync::Mutex::new(()));
        let calls: JoinSet<_> = (0..callers)
            .map(|_| {
                let (window, server) = (Arc::clone(&window), Arc::clone(&server));
                async move {
                    let (mut late, mut refused) = (0, 0);
                    for _ in 0..20 {
                        let mut deadline = CallDeadline::new(DEADLINE);
                        let Ok(permit) = window.enter(&mut deadline).await else {
                            refused += 1;
                            continue;
                        };
                        let reply = async {
                            let _turn = server.lock().await;
                            elapse(service).await;
                        };
                        let in_time = tokio::time::timeout_at(deadline.until(), reply).await;
                        late += usize::from(in_time.is_err());
                        let failure = in_time.err().map(|_| StoreErrorKind::TimedOut);
                        permit.complete(failure);
                    }
                    (late, refused)
                }
            })
            .collect();
        let (late, refused): (Vec<usize>, Vec<usize>) = calls.join_all().await.into_iter().unzip();
        (late.iter().sum(), refused.iter().sum())
    }

    /// 500 calls under way were all sent at once. A server that does 10 in a millisecond let most of them miss the deadline of
    /// 15 ms, the breaker opened, and a healthy server made 0 to 33 % of the decisions. Here everything is ten times slower,
    /// because tokio's timers have a resolution of 1 ms.
    #[tokio::test(start_paused = true)]
    async fn a_busy_server_that_replies_misses_no_deadline() {
        let service = Duration::from_millis(1);
        assert_eq!(run(500, service, 0).await, (0, 0));
        let (without_window, _) = run(500, service, 4_096).await;
        assert!(without_window > 5_000, "{without_window} of 10,000");
    }

    /// The window is too large for a server that has become slower, until it has shrunk.
    #[tokio::test(start_paused = true)]
    async fn the_window_shrinks_when_replies_are_slow() {
        let (late, _) = run(40, Duration::from_millis(10), 0).await;
        assert!(late < 100, "{late} of 800");
    }

    #[tokio::test(start_paused = true)]
    async fn the_window_grows_when_replies_are_fast_however_far_the_server_is() {
        let window = Arc::new(CallWindow::new(4_096, DEADLINE));
        let calls: JoinSet<_> = (0..1_000)
            .map(|_| {
                let window = Arc::clone(&window);
                async move {
                    for _ in 0..20 {
                        let mut deadline = CallDeadline::new(DEADLINE);
                        let permit = window.enter(&mut deadline).await.unwrap();
                        elapse(Duration::from_millis(100)).await;
                        permit.complete(None);
                    }
                }
            })
            .collect();
        calls.join_all().await;
        assert!(window.size.load(Ordering::Relaxed) > 500);
        assert_eq!(window.waiting(), 0);
    }

    /// I-04: a call that waits to be sent to a server that no longer replies is over when the sent ones are.
    #[tokio::test(start_paused = true)]
    async fn i04_waiting_calls_end_with_the_first_that_gets_no_reply() {
        let window = Arc::new(CallWindow::new(4_096, DEADLINE));
        let begun = Instant::now();
        let calls: JoinSet<_> = (0..500)
            .map(|_| {
                let window = Arc::clone(&window);
                async move {
                    let mut deadline = CallDeadline::new(DEADLINE);
                    match window.enter(&mut deadline).await {
                        Ok(permit) => {
                            elapse(deadline.until() - Instant::now()).await;
                            permit.complete(Some(StoreErrorKind::TimedOut));
                        }
                        Err(error) => assert_eq!(error.kind(), StoreErrorKind::Busy),
                    }
                    begun.elapsed()
                }
            })
            .collect();
        let slack = Duration::from_millis(1);
        let times = calls.join_all().await;
        assert!(times.iter().all(|time| *time <= DEADLINE + slack));
    }

    /// I-04: a decision of several calls waits no longer than a decision of one call.
    #[tokio::test(start_paused = true)]
    async fn i04_the_waits_of_one_decision_are_bounded_together() {
        let window = CallWindow::new(1, DEADLINE);
        let mut first = CallDeadline::new(DEADLINE);
        let begun = first.until();
        let max_wait = DEADLINE * MAX_WAIT_DEADLINES;
        let waited = max_wait - Duration::from_millis(1);
        first.add_wait(waited);
        assert_eq!(first.until(), begun + waited);
        let _sent = window
            .enter(&mut CallDeadline::new(DEADLINE))
            .await
            .unwrap();
        let before = Instant::now();
        let error = window.enter(&mut first).await.unwrap_err();
        assert_eq!(error.kind(), StoreErrorKind::Busy);
        assert!(before.elapsed() <= Duration::from_millis(2));
        assert_eq!(window.waiting(), 0, "a call that failed does not wait");
    }
}
