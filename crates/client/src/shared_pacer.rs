//! A pacer that tasks share: futures that wait for their turn, and permits that cannot be lost.
//!
//! Must not know: HTTP requests.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::RateLimitInfo;
use tollgate_store::shared_quota::SharedLimit;
use tollgate_store::{Clock, SharedQuotaStore, SystemClock};

use crate::alarm::{Alarm, AlarmId, AlarmTable};
use crate::error::PaceError;
use crate::pacer::{Acquired, Grant, Pacer, PartitionStatus, WaiterId, WaiterState};
use crate::request::{PaceRequest, RequestCost};
use crate::retry::{RetryDecision, ServerRefusal};
use crate::settings::PacerSettings;
use crate::shared_quota::StoreLink;
use crate::timer::{OnTimer, Timer};

/// A pacer for all tasks of a process. Clones share it. It needs no runtime: one thread of its own wakes the tasks.
///
/// ```
/// use tollgate_client::{PaceRequest, PacerSettings, ResponseReader, SharedPacer};
///
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), tollgate_client::PaceError> {
/// let pacer = SharedPacer::new(PacerSettings::default());
/// let permit = pacer.acquire(&PaceRequest::new("api.example.com")).await?;
/// // Send the request here, then report its response.
/// let mut reader = ResponseReader::new(pacer.now());
/// reader.field("ratelimit", br#""api";r=99;t=1"#);
/// let refusal = permit.finish(200, &reader.finish());
/// assert_eq!(refusal, None);
/// # Ok(()) }
/// ```
pub struct SharedPacer<C: Clock + 'static = SystemClock> {
    inner: Arc<PacerInner<C>>,
}

struct PacerInner<C> {
    clock: C,
    state: Mutex<PacerState>,
    timer: Arc<Timer>,
    store: Option<StoreLink>,
    max_block: Nanos,
}

struct PacerState {
    pacer: Pacer,
    /// The wakers of waiters, by slot.
    wakers: Vec<Option<Waker>>,
    alarms: AlarmTable,
}

impl SharedPacer {
    /// A pacer on the system's clock.
    #[must_use]
    pub fn new(settings: PacerSettings) -> Self {
        Self::with_clock(settings, SystemClock::new())
    }

    /// A pacer that shares what a server reports, the waits that it asks for and the retry budget with other processes, through
    /// a store. [`PacerLayer`](crate::PacerLayer) and the middleware for reqwest use it. While the store does not reply, the
    /// process paces itself alone.
    #[must_use]
    pub fn with_store(settings: PacerSettings, store: Arc<dyn SharedQuotaStore>) -> Self {
        Self::build(settings, SystemClock::new(), Some(StoreLink::new(store)))
    }
}

impl<C: Clock + 'static> SharedPacer<C> {
    /// A pacer on another clock. With a clock that stands still, call [`SharedPacer::tick`] after moving it.
    #[must_use]
    pub fn with_clock(settings: PacerSettings, clock: C) -> Self {
        Self::build(settings, clock, None)
    }

    pub(crate) fn build(settings: PacerSettings, clock: C, store: Option<StoreLink>) -> Self {
        // Processes that start at the same time still have different addresses and nanoseconds.
        let timer = Arc::new(Timer::default());
        let address = u64::try_from(Arc::as_ptr(&timer).addr()).unwrap_or(0);
        let seed = clock.now().as_nanos() ^ address.rotate_left(32) ^ u64::from(std::process::id());
        Self {
            inner: Arc::new(PacerInner {
                clock,
                store,
                max_block: settings.max_block,
                state: Mutex::new(PacerState {
                    pacer: Pacer::new(settings, seed),
                    wakers: Vec::new(),
                    alarms: AlarmTable::default(),
                }),
                timer,
            }),
        }
    }

    /// The time of the pacer's clock.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Waits until the request may be sent. Dropping the future gives up its place.
    pub fn acquire(&self, request: &PaceRequest<'_>) -> Acquire<C> {
        let now = self.now();
        let acquired = self.inner.lock().pacer.acquire(request, now);
        let state = match acquired {
            Ok(Acquired::Now(grant)) => AcquireState::Ready(Ok(self.permit(grant))),
            Ok(Acquired::Queued(waiter)) => {
                self.inner.timer.notify(&self.inner);
                AcquireState::Waiting(waiter)
            }
            Err(error) => AcquireState::Ready(Err(error)),
        };
        Acquire {
            pacer: self.clone(),
            state,
        }
    }

    /// Whether a refused request is sent again: acquire with [`PaceRequest::as_retry`].
    pub fn decide_retry(
        &self,
        refusal: &ServerRefusal,
        attempt: u32,
        deadline: Option<Timestamp>,
    ) -> RetryDecision {
        let now = self.now();
        let pacer = &mut self.inner.lock().pacer;
        pacer.decide_retry(refusal, attempt, deadline, now)
    }

    /// Whether the turn of a request is so far away that it would fail at once.
    pub(crate) fn is_hopeless(&self, request: &PaceRequest<'_>) -> bool {
        let now = self.now();
        self.inner.lock().pacer.check_turn(request, now).is_err()
    }

    /// A future that ends after this span.
    pub(crate) fn alarm(&self, after: Nanos) -> Alarm<C> {
        Alarm::new(self.clone(), self.now().after(after))
    }

    pub(crate) fn set_alarm(&self, at: Timestamp, id: Option<AlarmId>, waker: Waker) -> AlarmId {
        let id = self.inner.lock().alarms.set(at, id, waker);
        self.inner.timer.notify(&self.inner);
        id
    }

    pub(crate) fn remove_alarm(&self, id: AlarmId) {
        // The waker is dropped outside of the lock.
        let waker = self.inner.lock().alarms.remove(id);
        drop(waker);
    }

    /// Grants what is due now. The pacer's thread does so on a clock that runs.
    pub fn tick(&self) {
        self.inner.grant_due();
    }

    /// What was learned about each partition.
    #[must_use]
    pub fn status(&self) -> Vec<PartitionStatus> {
        let now = self.now();
        self.inner.lock().pacer.status(now).collect()
    }

    /// The number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.inner.lock().pacer.waiting()
    }

    /// The number of rate limit fields that were ignored because they are malformed.
    #[must_use]
    pub fn malformed_fields(&self) -> u64 {
        self.inner.lock().pacer.malformed_fields()
    }

    pub(crate) fn store_link(&self) -> Option<&StoreLink> {
        self.inner.store.as_ref()
    }

    pub(crate) fn max_block(&self) -> Nanos {
        self.inner.max_block
    }

    fn permit(&self, grant: Grant) -> PacePermit<C> {
        PacePermit {
            pacer: self.clone(),
            grant: Some(grant),
            is_sent: false,
        }
    }
}

impl<C: Clock + 'static> Clone for SharedPacer<C> {
    fn clone(&self) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
        }
    }
}

impl<C: Clock + 'static> fmt::Debug for SharedPacer<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Names of partitions may hold digests of credentials, so only their number is shown.
        f.debug_struct("SharedPacer")
            .field("waiting", &self.waiting())
            .finish_non_exhaustive()
    }
}

impl<C: Clock + 'static> PacerInner<C> {
    fn lock(&self) -> MutexGuard<'_, PacerState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Grants what is due, wakes the tasks, and returns when to look again.
    fn grant_due(&self) -> Option<Timestamp> {
        let now = self.clock.now();
        let mut due = Vec::new();
        let next = {
            let state = &mut *self.lock();
            let wakers = &mut state.wakers;
            state.pacer.grant_due(now, |waiter| {
                due.extend(wakers.get_mut(waiter.slot()).and_then(Option::take));
            });
            due.extend(state.alarms.take_due(now));
            let wakeups = [state.pacer.next_wakeup(now), state.alarms.next()];
            wakeups.into_iter().flatten().min()
        };
        // Outside the lock: a waker may poll at once.
        due.into_iter().for_each(Waker::wake);
        next
    }
}

impl<C: Clock + 'static> OnTimer for PacerInner<C> {
    fn fire(&self) -> Option<Duration> {
        let next = self.grant_due()?;
        let wait = next.since(self.clock.now());
        Some(Duration::from_nanos(wait.as_nanos()))
    }
}

impl<C> Drop for PacerInner<C> {
    fn drop(&mut self) {
        self.timer.stop();
    }
}

enum AcquireState<C: Clock + 'static> {
    Ready(Result<PacePermit<C>, PaceError>),
    Waiting(WaiterId),
    Done,
}

/// The future of [`SharedPacer::acquire`].
#[must_use = "futures do nothing unless polled"]
pub struct Acquire<C: Clock + 'static = SystemClock> {
    pacer: SharedPacer<C>,
    state: AcquireState<C>,
}

impl<C: Clock + 'static> Future for Acquire<C> {
    type Output = Result<PacePermit<C>, PaceError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        match std::mem::replace(&mut this.state, AcquireState::Done) {
            AcquireState::Ready(result) => Poll::Ready(result),
            AcquireState::Done => Poll::Pending,
            AcquireState::Waiting(waiter) => {
                let mut state = this.pacer.inner.lock();
                match state.pacer.poll(waiter) {
                    WaiterState::Granted(grant) => {
                        drop(state);
                        Poll::Ready(Ok(this.pacer.permit(grant)))
                    }
                    WaiterState::Failed(error) => Poll::Ready(Err(error)),
                    WaiterState::Waiting => {
                        let slot = waiter.slot();
                        if state.wakers.len() <= slot {
                            state.wakers.resize(slot + 1, None);
                        }
                        if let Some(waker) = state.wakers.get_mut(slot) {
                            *waker = Some(context.waker().clone());
                        }
                        drop(state);
                        this.state = AcquireState::Waiting(waiter);
                        Poll::Pending
                    }
                }
            }
        }
    }
}

impl<C: Clock + 'static> Drop for Acquire<C> {
    fn drop(&mut self) {
        if let AcquireState::Waiting(waiter) = self.state {
            let now = self.pacer.now();
            let waker = {
                let state = &mut *self.pacer.inner.lock();
                state.pacer.cancel(waiter, now);
                state.wakers.get_mut(waiter.slot()).and_then(Option::take)
            };
            drop(waker);
            // A grant that was not taken goes to the next waiter.
            self.pacer.inner.timer.notify(&self.pacer.inner);
        }
    }
}

impl<C: Clock + 'static> fmt::Debug for Acquire<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acquire").finish_non_exhaustive()
    }
}

/// The permission to send one request. Dropped before [`PacePermit::mark_sent`] it counts against no limit; dropped after
/// that it counts, because the server may have counted it.
#[must_use = "report the response, or drop it to give the permit back"]
pub struct PacePermit<C: Clock + 'static = SystemClock> {
    pacer: SharedPacer<C>,
    grant: Option<Grant>,
    is_sent: bool,
}

impl<C: Clock + 'static> PacePermit<C> {
    /// Records that the request is being sent.
    pub const fn mark_sent(&mut self) {
        self.is_sent = true;
    }

    /// Replaces the estimated cost by what the request used.
    pub fn settle(&mut self, actual: RequestCost) {
        if let Some(grant) = &mut self.grant {
            self.pacer.inner.lock().pacer.settle(grant, actual);
        }
    }

    /// Reports the response. Returns the refusal, if it is one.
    pub fn finish(mut self, status: u16, info: &RateLimitInfo) -> Option<ServerRefusal> {
        let grant = self.grant.take()?;
        let now = self.pacer.now();
        let (refusal, is_waiting) = {
            let pacer = &mut self.pacer.inner.lock().pacer;
            let refusal = pacer.on_response(grant, status, info, now);
            (refusal, pacer.waiting() > 0)
        };
        if is_waiting {
            self.pacer.inner.timer.notify(&self.pacer.inner);
        }
        refusal
    }

    /// The partition of the request and its limits, to be shared with other processes.
    pub(crate) fn shared_limits(&self) -> Option<(String, Vec<SharedLimit>)> {
        let now = self.pacer.now();
        let state = &mut *self.pacer.inner.lock();
        state.pacer.shared_limits(self.grant.as_ref()?, now)
    }

    /// Gives the permit back, and sends nothing to its partition for this long.
    pub(crate) fn postpone(mut self, wait: Nanos) {
        if let Some(grant) = self.grant.take() {
            let now = self.pacer.now();
            let wait = wait.min(self.pacer.max_block());
            self.pacer.inner.lock().pacer.postpone(grant, wait, now);
            self.pacer.inner.timer.notify(&self.pacer.inner);
        }
    }

    /// Reports that there was no response.
    pub fn fail(mut self) {
        if let Some(grant) = self.grant.take() {
            let now = self.pacer.now();
            self.pacer.inner.lock().pacer.on_failure(grant, now);
            self.pacer.inner.timer.notify(&self.pacer.inner);
        }
    }
}

impl<C: Clock + 'static> Drop for PacePermit<C> {
    fn drop(&mut self) {
        if let Some(grant) = self.grant.take() {
            let now = self.pacer.now();
            let is_waiting = {
                let pacer = &mut self.pacer.inner.lock().pacer;
                if self.is_sent {
                    pacer.abandon(grant);
                } else {
                    pacer.release(grant, now);
                }
                pacer.waiting() > 0
            };
            if is_waiting {
                self.pacer.inner.timer.notify(&self.pacer.inner);
            }
        }
    }
}

impl<C: Clock + 'static> fmt::Debug for PacePermit<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PacePermit")
            .field("is_sent", &self.is_sent)
            .finish_non_exhaustive()
    }
}
