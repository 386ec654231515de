//! The adaptive limit with its queue in front: requests start, wait or are shed.
//!
//! Must not know: how a waiting request is told, clocks, policies.

use tollgate_core::{Nanos, Timestamp};

use crate::adaptive_limit::{AdaptiveLimit, Completion};
use crate::priority_class::PriorityClass;
use crate::priority_queue::{PriorityQueue, PushOutcome};

/// The least number of requests that may wait.
const LEAST_CAPACITY: usize = 16;
/// The wait in an overloaded class spans this many departures, or a request could leave before anything departs.
const DEPARTURES_OF_SHORT_WAIT: f64 = 4.0;

/// What happens to a request that arrives.
#[derive(Debug, PartialEq, Eq)]
pub enum GateOutcome<T> {
    /// It starts now.
    Started(T),
    /// It waits. [`ConcurrencyGate::next`] or `shed` returns it later.
    Queued,
    /// It is shed.
    Shed(T),
}

/// How full a gate is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueOccupancy {
    /// The most requests in flight.
    pub limit: u32,
    /// The requests in flight.
    pub in_flight: u32,
    /// The requests that wait.
    pub queued: usize,
}

/// An adaptive concurrency limit with a priority queue.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_overload::{Completion, ConcurrencyGate, GateOutcome, PriorityClass};
///
/// let now = Timestamp::from_secs(1);
/// let mut gate = ConcurrencyGate::new(now);
/// let outcome = gate.arrive(now, PriorityClass::CRITICAL, 7, "request", |_shed| {});
/// assert_eq!(outcome, GateOutcome::Started("request"));
/// let end = Timestamp::from_secs(2);
/// gate.finish(end, now, Completion::Served);
/// assert_eq!(gate.next(end, |_shed| {}), None);
/// ```
#[derive(Debug)]
pub struct ConcurrencyGate<T> {
    limit: AdaptiveLimit,
    queue: PriorityQueue<T>,
}

impl<T> ConcurrencyGate<T> {
    /// A gate that has measured nothing yet.
    #[must_use]
    pub fn new(now: Timestamp) -> Self {
        Self {
            limit: AdaptiveLimit::new(now),
            queue: PriorityQueue::new(),
        }
    }

    /// A request arrives. Requests that have to leave for it, or waited too long, are passed to `shed`.
    pub fn arrive(
        &mut self,
        now: Timestamp,
        class: PriorityClass,
        tenant: u64,
        item: T,
        mut shed: impl FnMut(T),
    ) -> GateOutcome<T> {
        if self.try_start(now, &mut shed) {
            return GateOutcome::Started(item);
        }
        self.enqueue(now, class, tenant, item, shed)
    }

    /// Starts a request if there is a place and nobody waits for it.
    #[must_use = "a request that started must finish"]
    pub fn try_start(&mut self, now: Timestamp, shed: impl FnMut(T)) -> bool {
        self.queue.expire(now, shed);
        self.queue.is_empty() && self.limit.try_start(now)
    }

    /// Starts a request whatever the limit. Returns whether it is above the limit.
    pub fn start_observed(&mut self, now: Timestamp) -> bool {
        let has_room = self.limit.try_start(now);
        if !has_room {
            self.limit.start(now);
        }
        !has_room
    }

    /// Lets a request wait. Requests that have to leave for it are passed to `shed`.
    pub fn enqueue(
        &mut self,
        now: Timestamp,
        class: PriorityClass,
        tenant: u64,
        item: T,
        mut shed: impl FnMut(T),
    ) -> GateOutcome<T> {
        let capacity = self.queue_capacity();
        match self.queue.push(now, class, tenant, item, capacity) {
            PushOutcome::Queued => GateOutcome::Queued,
            PushOutcome::Evicted(lower) => {
                shed(lower);
                GateOutcome::Queued
            }
            PushOutcome::Full(item) => GateOutcome::Shed(item),
        }
    }

    /// A request that was started at `started` ends. Call [`next`](Self::next) until it returns `None` afterwards.
    pub fn finish(&mut self, now: Timestamp, started: Timestamp, completion: Completion) {
        let before = self.limit.limit();
        self.limit.finish(now, started, completion);
        if before != self.limit.limit()
            && let Some(latency) = self.limit.latency_seconds()
        {
            let departure = latency / f64::from(self.limit.limit());
            self.queue
                .set_short_wait(from_seconds(DEPARTURES_OF_SHORT_WAIT * departure));
        }
    }

    /// The next waiting request that may start. Requests that waited too long are passed to `shed`.
    pub fn next(&mut self, now: Timestamp, shed: impl FnMut(T)) -> Option<T> {
        if self.queue.is_empty() || !self.limit.try_start(now) {
            return None;
        }
        let item = self.queue.pop(now, shed);
        if item.is_none() {
            // All that waited had expired.
            self.limit.finish(now, now, Completion::Ignored);
        }
        item
    }

    /// Removes the requests that waited too long.
    pub fn expire(&mut self, now: Timestamp, shed: impl FnMut(T)) {
        self.queue.expire(now, shed);
    }

    /// Whether a request of this class would be shed at once: the queue is full and holds no lower class.
    #[must_use]
    pub fn is_full_for(&self, class: PriorityClass) -> bool {
        let lower = (class.index() + 1..crate::MAX_CLASSES).filter_map(PriorityClass::new);
        self.queue.len() >= self.queue_capacity()
            && lower.map(|class| self.queue.len_of(class)).sum::<usize>() == 0
    }

    /// How full the gate is.
    #[must_use]
    pub const fn occupancy(&self) -> QueueOccupancy {
        QueueOccupancy {
            limit: self.limit.limit(),
            in_flight: self.limit.in_flight(),
            queued: self.queue.len(),
        }
    }

    /// What the upstream can do at a time. `None` before it was found.
    #[must_use]
    pub const fn capacity(&self) -> Option<u32> {
        self.limit.capacity()
    }

    /// Whether the last measurements agree about the limit.
    #[must_use]
    pub const fn is_settled(&self) -> bool {
        self.limit.is_settled()
    }

    /// The mean latency that was measured last. `None` before the first measurement.
    #[must_use]
    pub fn latency(&self) -> Option<Nanos> {
        self.limit.latency_seconds().map(from_seconds)
    }

    /// The requests that the upstream can do in a second. `None` before its capacity was found.
    #[must_use]
    pub fn capacity_per_second(&self) -> Option<f64> {
        self.limit.throughput_per_second()
    }

    /// As many requests may wait as may run: more would wait longer than a latency.
    fn queue_capacity(&self) -> usize {
        usize::try_from(self.limit.limit())
            .unwrap_or(usize::MAX)
            .max(LEAST_CAPACITY)
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "casts from floats saturate, and a negative wait is none"
)]
fn from_seconds(seconds: f64) -> Nanos {
    Nanos::from_nanos((seconds * 1e9) as u64)
}
