//! How many calls are on the way to one server at a time. Further calls wait here, in order.
//!
//! A server that has more to do than it can gets slower with every call that it is sent, until each of them misses its deadline
//! and a healthy server looks dead. So a call that waits here has not been sent, its deadline has not begun, and the number of
//! sent calls follows the time that replies take: it grows while replies are about as fast as the fastest ones, and shrinks
//! while they are much slower. If no reply arrives at all, waiting calls fail with the sent ones.
//!
//! A caller may go away while its call is on the way. The server answers it all the same, so the call keeps its place until its
//! deadline: otherwise clients that leave at once could send a server any number of calls. Must not know: servers, what is in a
//! call.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
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
    /// When the places of calls whose callers went away become free, about in order. Each has a place, so there are at most
    /// `max_size`.
    abandoned: Mutex<VecDeque<Instant>>,
    /// How many there are, so that calls need no lock where nobody goes away.
    abandoned_count: AtomicUsize,
}

/// The permission to send one call.
#[derive(Debug)]
pub(crate) struct WindowPermit<'a> {
    window: &'a CallWindow,
    /// `None` once the call is complete.
    permit: Option<SemaphorePermit<'a>>,
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
            abandoned: Mutex::default(),
            abandoned_count: AtomicUsize::new(0),
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
        self.free_abandoned(Instant::now);
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
            permit: Some(permit),
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
        let mut acquired = pin!(acquired);
        let until = Instant::now() + max_wait;
        loop {
            let wake = self.next_abandoned().map_or(until, |at| at.min(until));
            if let Ok(acquired) = tokio::time::timeout_at(wake, &mut acquired).await {
                return acquired;
            }
            let now = Instant::now();
            if now >= until {
                let overloaded = "not sent in time, because the server has too much to do";
                return Err(busy(overloaded));
            }
            self.free_abandoned(|| now);
        }
    }

    /// When the next place of a caller that went away becomes free.
    fn next_abandoned(&self) -> Option<Instant> {
        let abandoned = self.abandoned.lock();
        let abandoned = abandoned.unwrap_or_else(PoisonError::into_inner);
        abandoned.front().copied()
    }

    /// Keeps the place of a call whose caller went away.
    fn abandon(&self, permit: SemaphorePermit<'_>, sent_at: Instant) {
        let abandoned = self.abandoned.lock();
        let mut abandoned = abandoned.unwrap_or_else(PoisonError::into_inner);
        permit.forget();
        abandoned.push_back(sent_at + self.deadline);
        self.abandoned_count
            .store(abandoned.len(), Ordering::Relaxed);
    }

    /// Frees the places of calls whose callers went away and whose deadlines have passed.
    fn free_abandoned(&self, now: impl FnOnce() -> Instant) {
        if self.abandoned_count.load(Ordering::Relaxed) == 0 {
            return;
        }
        let now = now();
        let abandoned = self.abandoned.lock();
        let mut abandoned = abandoned.unwrap_or_else(PoisonError::into_inner);
        while abandoned.pop_front_if(|at| *at <= now).is_some() {
            self.free.add_permits(1);
        }
        self.abandoned_count
            .store(abandoned.len(), Ordering::Relaxed);
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
    pub(crate) fn complete(mut self, failure: Option<StoreErrorKind>) {
        let (window, sent_at) = (self.window, self.sent_at);
        let Some(permit) = self.permit.take() else {
            return;
        };
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

impl Drop for WindowPermit<'_> {
    fn drop(&mut self) {
        if let Some(permit) = self.permit.take() {
            self.window.abandon(permit, self.sent_at);
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
mod tests;
