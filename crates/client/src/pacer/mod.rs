//! The pacer: when may which request be sent, and what follows from its response. It does no IO and reads no clock.
//!
//! - `partition_table.rs`: one bucket for each partition of a server
//! - `bucket.rs`: the limits of a partition, and its queue
//! - `hidden_quota/`, `reported_limit.rs`: the pace, from refusals and from reports
//! - `wait_queue.rs`: the requests that wait
//!
//! Must not know: futures, timers, any HTTP library.

mod bucket;
pub(crate) mod hidden_quota;
mod numbers;
mod partition_table;
mod reported_limit;
mod wait_queue;

use tollgate_core::{Nanos, Timestamp};
use tollgate_http::{RateLimitInfo, RefusalReason, Scope};
use tollgate_overload::RetryBudget;
use tollgate_store::shared_quota::SharedLimit;

use self::bucket::Bucket;
use self::hidden_quota::Purpose;
use self::numbers::{from_count, nanos, seconds, to_count, to_whole};
use self::partition_table::{BucketId, PartitionTable};
use self::wait_queue::WaitQueue;
use crate::error::PaceError;
use crate::random::Random;
use crate::request::{PaceRequest, RequestCost};
use crate::retry::{RetryDecision, ServerRefusal, backoff, classify};
use crate::settings::PacerSettings;

pub use self::wait_queue::WaiterId;

/// Retries are at most this share of the first tries, in hundredths of a percent.
const RETRY_SHARE: u16 = 2_000;

/// A request that may be sent now. It counts against the limits until it is returned to the pacer.
#[derive(Debug)]
#[must_use = "return it to the pacer with the response, or release it"]
pub struct Grant {
    bucket: BucketId,
    cost: RequestCost,
    sent_at: Timestamp,
    purpose: Purpose,
}

/// The answer to [`Pacer::acquire`].
#[derive(Debug)]
pub enum Acquired {
    /// The request may be sent now.
    Now(Grant),
    /// The request waits for its turn; see [`Pacer::poll`].
    Queued(WaiterId),
}

/// The state of a request that waits.
#[derive(Debug)]
pub enum WaiterState {
    /// It still waits.
    Waiting,
    /// It may be sent now.
    Granted(Grant),
    /// It fails.
    Failed(PaceError),
}

/// What the pacer has learned about a partition, to be shown to people.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct PartitionStatus {
    /// The partition's name: host and route, without credentials.
    pub name: String,
    /// The requests per second at which the pacer sends, if no limit is reported.
    pub rate: f64,
    /// Until when nothing is sent.
    pub blocked_until: Option<Timestamp>,
    /// The requests that wait.
    pub waiting: usize,
    /// The requests that have no response yet.
    pub in_flight: u32,
}

/// Decides when requests may be sent. It does no IO and reads no clock; [`SharedPacer`](crate::SharedPacer) drives it.
///
/// ```
/// use tollgate_client::{Acquired, PaceRequest, Pacer, PacerSettings};
/// use tollgate_core::{Nanos, Timestamp};
/// use tollgate_http::ResponseReader;
///
/// let mut pacer = Pacer::new(PacerSettings::default(), 1);
/// let now = Timestamp::from_secs(1_000);
/// let request = PaceRequest::new("api.example.com");
/// let Ok(Acquired::Now(grant)) = pacer.acquire(&request, now) else { panic!() };
///
/// // The server refuses, and says for how long.
/// let mut reader = ResponseReader::new(now);
/// reader.field("retry-after", b"30");
/// pacer.on_response(grant, 429, &reader.finish(), now);
///
/// let Ok(Acquired::Queued(_)) = pacer.acquire(&request, now) else { panic!() };
/// assert!(pacer.next_wakeup(now).unwrap() >= now.after(Nanos::from_secs(30)));
/// ```
#[derive(Debug)]
pub struct Pacer {
    settings: PacerSettings,
    table: PartitionTable,
    waiters: WaitQueue,
    budget: RetryBudget,
    random: Random,
    malformed_fields: u64,
}

#[expect(
    clippy::needless_pass_by_value,
    reason = "a grant can be returned only once"
)]
impl Pacer {
    /// A pacer. Processes need different seeds, so that they do not retry at the same time.
    #[must_use]
    pub fn new(settings: PacerSettings, seed: u64) -> Self {
        Self {
            table: PartitionTable::new(&settings),
            waiters: WaitQueue::new(settings.max_waiters),
            budget: RetryBudget::from_hundredths_of_percent(RETRY_SHARE),
            random: Random::new(seed),
            malformed_fields: 0,
            settings,
        }
    }

    /// Asks to send a request: it may be sent now, or waits.
    ///
    /// # Errors
    /// The wait would pass the request's deadline or the longest wait, or too many requests wait.
    pub fn acquire(
        &mut self,
        request: &PaceRequest<'_>,
        now: Timestamp,
    ) -> Result<Acquired, PaceError> {
        if !request.is_retry {
            self.budget.record_request();
        }
        let id = self.table.find(request.partition, request.route, now);
        let Some(bucket) = self.table.get_mut(id) else {
            return Err(PaceError::QueueFull);
        };
        bucket.last_used = now;
        let ready_at = bucket.ready_at(&request.cost, now);
        if ready_at <= now && !bucket.has_waiter_before(request.priority) {
            let grant = bucket.send(id, request.cost, now, false, &mut self.random);
            return Ok(Acquired::Now(grant));
        }
        let since = request.waits_since.unwrap_or(now);
        let wait = bucket.expected_wait(&request.cost, now);
        let waited = now.since(since);
        self.settings
            .check_wait(wait, waited, request.deadline, now)?;
        let max = self.settings.max_wait;
        let waiter = self.waiters.push(id, request, since, max);
        let waiter = waiter.ok_or(PaceError::QueueFull)?;
        bucket.enqueue(waiter, request.priority, request.is_retry);
        self.table.mark_busy(id);
        Ok(Acquired::Queued(waiter))
    }

    /// Whether a request that asked now would fail at once, because its turn is too far away. Nothing is queued.
    pub(crate) fn check_turn(
        &mut self,
        request: &PaceRequest<'_>,
        now: Timestamp,
    ) -> Result<(), PaceError> {
        let id = self.table.find(request.partition, request.route, now);
        let Some(bucket) = self.table.get_mut(id) else {
            return Ok(());
        };
        let wait = bucket.expected_wait(&request.cost, now);
        self.settings
            .check_wait(wait, Nanos::ZERO, request.deadline, now)
    }

    /// When [`Pacer::grant_due`] has to be called next. `None` if nothing waits for a time.
    #[must_use]
    pub fn next_wakeup(&self, now: Timestamp) -> Option<Timestamp> {
        let times = self.table.busy().filter_map(|bucket| {
            let front = self.waiters.get(bucket.front()?)?;
            Some(bucket.ready_at(&front.cost, now)).filter(|at| *at < NEVER)
        });
        times.chain(self.waiters.next_expiry()).min()
    }

    /// Grants every request that may be sent now, and fails those that have waited too long. Calls `on_change` with each, to wake
    /// its task.
    pub fn grant_due(&mut self, now: Timestamp, mut on_change: impl FnMut(WaiterId)) {
        while let Some(expired) = self.waiters.take_expired(now) {
            self.fail(expired, now);
            on_change(expired);
        }
        for id in self.table.take_busy() {
            let Some(bucket) = self.table.get_mut(id) else {
                continue;
            };
            while let Some(front) = bucket.front() {
                let Some(waiter) = self.waiters.get(front) else {
                    bucket.pop_front();
                    continue;
                };
                let cost = waiter.cost;
                if bucket.ready_at(&cost, now) > now {
                    break;
                }
                bucket.pop_front();
                let grant = bucket.send(id, cost, now, true, &mut self.random);
                self.waiters.finish(front, Ok(grant));
                on_change(front);
            }
            if bucket.front().is_some() {
                self.table.mark_busy(id);
            }
        }
    }

    /// The state of a request that waits. A grant or failure is returned once.
    pub fn poll(&mut self, waiter: WaiterId) -> WaiterState {
        self.waiters.poll(waiter)
    }

    /// Gives up a wait. A grant that was not taken is released.
    pub fn cancel(&mut self, waiter: WaiterId, now: Timestamp) {
        let bucket = self.waiters.get(waiter).map(|waiter| waiter.bucket);
        if let Some(grant) = self.waiters.remove(waiter) {
            self.release(grant, now);
        } else if let Some(bucket) = bucket.and_then(|id| self.table.get_mut(id)) {
            let waiters = &self.waiters;
            bucket.on_waiter_removed(|id| waiters.get(id).is_some());
        }
    }

    /// Takes back a grant whose request was not sent. It counts against no limit.
    pub fn release(&mut self, grant: Grant, now: Timestamp) {
        if let Some(bucket) = self.table.get_mut(grant.bucket) {
            bucket.release(&grant, now);
        }
    }

    /// Takes back a grant whose request was not sent, because other processes have used up the quota for this long.
    pub(crate) fn postpone(&mut self, grant: Grant, wait: Nanos, now: Timestamp) {
        let id = grant.bucket;
        self.release(grant, now);
        if let Some(bucket) = self.table.get_mut(id) {
            bucket.block(now.after(wait));
            self.table.mark_busy(id);
            self.fail_hopeless(id, now);
        }
    }

    /// The name of a grant's partition, and the limits that it counts against.
    pub(crate) fn shared_limits(
        &mut self,
        grant: &Grant,
        now: Timestamp,
    ) -> Option<(String, Vec<SharedLimit>)> {
        let bucket = self.table.get_mut(grant.bucket)?;
        let limits = bucket.shared_limits(&grant.cost, now);
        Some((bucket.name().to_owned(), limits))
    }

    /// Takes back a grant whose request was sent and has no result, because its task was dropped.
    pub fn abandon(&mut self, grant: Grant) {
        if let Some(bucket) = self.table.get_mut(grant.bucket) {
            bucket.abandon(&grant);
        }
    }

    /// Corrects the cost of a request that is in flight, when the server has said what it used.
    pub fn settle(&mut self, grant: &mut Grant, actual: RequestCost) {
        if let Some(bucket) = self.table.get_mut(grant.bucket) {
            bucket.settle(&grant.cost, &actual);
        }
        grant.cost = actual;
    }

    /// Learns from a response. Returns the refusal, if it is one.
    pub fn on_response(
        &mut self,
        grant: Grant,
        status: u16,
        info: &RateLimitInfo,
        now: Timestamp,
    ) -> Option<ServerRefusal> {
        self.malformed_fields = self
            .malformed_fields
            .saturating_add(u64::from(info.malformed_fields));
        let refusal = classify(status, info, &self.settings);
        let id = self.table.rebind(grant.bucket, info, now);
        if id != grant.bucket
            && let Some(first) = self.table.get_mut(grant.bucket)
        {
            first.abandon(&grant);
            if let Some(bucket) = self.table.get_mut(id) {
                bucket.in_flight = bucket.in_flight.saturating_add(1);
            }
        }
        let bucket = self.table.get_mut(id)?;
        if info.is_cached {
            // It says nothing about the limits now. But the same would be answered again, so a refusal is waited for.
            bucket.abandon(&grant);
            if let Some(refusal) = &refusal {
                let wait = bucket.on_foreign_refusal(&grant, refusal, &mut self.random);
                bucket.block(now.after(wait.min(self.settings.max_block)));
                self.table.mark_busy(id);
                self.fail_hopeless(id, now);
            }
            return refusal;
        }
        bucket.finish(&grant, refusal.is_some());
        bucket.report(info, now);
        match &refusal {
            None => {
                bucket.on_success(&grant, now);
                self.fail_hopeless(id, now);
            }
            Some(refusal) => {
                let random = &mut self.random;
                let wait = match info.scope {
                    Some(Scope::Global | Scope::Shared) => {
                        bucket.on_foreign_refusal(&grant, refusal, random)
                    }
                    Some(Scope::User) | None => bucket.on_refusal(&grant, refusal, now, random),
                };
                let until = now.after(wait.min(self.settings.max_block));
                bucket.block(until);
                let blocked = if info.scope == Some(Scope::Global) {
                    self.table.block_host(id, until, now)
                } else {
                    vec![id]
                };
                for id in blocked {
                    self.table.mark_busy(id);
                    self.fail_hopeless(id, now);
                }
            }
        }
        refusal
    }

    /// Learns from a request that failed without a response.
    pub fn on_failure(&mut self, grant: Grant, now: Timestamp) {
        let Some(bucket) = self.table.get_mut(grant.bucket) else {
            return;
        };
        bucket.abandon(&grant);
        bucket.failures = bucket.failures.saturating_add(1);
        bucket.half_open();
        let wait = backoff(bucket.failures, &mut self.random);
        bucket.block(now.after(wait));
        self.table.mark_busy(grant.bucket);
        self.fail_hopeless(grant.bucket, now);
    }

    /// Whether and when a refused request may be retried. `attempt` is one for the first attempt.
    pub fn decide_retry(
        &mut self,
        refusal: &ServerRefusal,
        attempt: u32,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> RetryDecision {
        let is_final = matches!(
            refusal.reason,
            RefusalReason::QuotaExhausted | RefusalReason::Blocked
        );
        if is_final || refusal.may_retry == Some(false) {
            return RetryDecision::GiveUp;
        }
        let wait = refusal.retry_after.unwrap_or(Nanos::ZERO);
        if attempt >= self.settings.max_attempts
            || self
                .settings
                .check_wait(wait, Nanos::ZERO, deadline, now)
                .is_err()
            || (self.settings.has_retry_budget && !self.budget.take())
        {
            return RetryDecision::GiveUp;
        }
        RetryDecision::Retry
    }

    /// What was learned, one entry for each partition.
    pub fn status(&self, now: Timestamp) -> impl Iterator<Item = PartitionStatus> {
        self.table.iter().map(move |bucket| bucket.status(now))
    }

    /// The number of rate limit fields that were ignored because they are malformed.
    #[must_use]
    pub const fn malformed_fields(&self) -> u64 {
        self.malformed_fields
    }

    /// The number of requests that wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.waiters.len()
    }

    /// Lets requests expire whose turn comes too late for them: waiting longer cannot help them. They fail at the next
    /// [`Pacer::grant_due`], which the caller runs after every response.
    fn fail_hopeless(&mut self, id: BucketId, now: Timestamp) {
        let Some(bucket) = self.table.get_mut(id).filter(|_| self.waiters.len() > 0) else {
            return;
        };
        // Later turns depend on what becomes of earlier ones, so only the first is known. A block holds for all.
        let mut is_first = true;
        for waiter in bucket.waiters() {
            let Some(waiting) = self.waiters.get(waiter) else {
                continue;
            };
            let turn = match is_first {
                true => bucket.turn(&waiting.cost, now),
                false => bucket.blocked_until,
            };
            if waiting.latest < turn {
                self.waiters.expire(waiter);
            } else if bucket.blocked_until <= now {
                return;
            } else {
                is_first = false;
            }
        }
    }

    /// Fails a request that has waited too long, or will.
    fn fail(&mut self, waiter: WaiterId, now: Timestamp) {
        let Some(waiting) = self.waiters.get(waiter) else {
            return;
        };
        let bucket = self.table.get_mut(waiting.bucket);
        let turn = bucket.map_or(now, |bucket| bucket.turn(&waiting.cost, now));
        let error = waiting.error(turn, now, self.settings.max_wait);
        let id = waiting.bucket;
        self.waiters.finish(waiter, Err(error));
        if let Some(bucket) = self.table.get_mut(id) {
            bucket.on_waiter_removed(|id| self.waiters.get(id).is_some());
        }
    }
}

/// A time that never comes.
const NEVER: Timestamp = Timestamp::from_nanos(u64::MAX);
