//! The queue in front of a concurrency limit: bounded in length and delay, classes in order, tenants of a class in turn.
//!
//! A class that was empty a short time ago is served in order of arrival. A class with a standing queue is overloaded: its
//! newest requests are served first, and the wait becomes short, because old requests will miss their deadlines anyway. That
//! is CoDel's idea in the form of Facebook's "adaptive LIFO". Must not know: limits, what an item is, timers.

mod class_queue;
mod tenant_hash;

use tollgate_core::{Nanos, Timestamp};

use crate::priority_class::{MAX_CLASSES, PriorityClass};
use class_queue::ClassQueue;

/// A class whose queue was not empty for this long is overloaded. Until then an item may wait as long.
const STANDING: Nanos = Nanos::from_millis(100);
/// The least wait in an overloaded class.
const LEAST_WAIT: Nanos = Nanos::from_millis(5);

/// What became of an item that was pushed.
#[derive(Debug, PartialEq, Eq)]
pub enum PushOutcome<T> {
    /// It waits.
    Queued,
    /// It waits, and the queue was full: this item of a lower class had to leave.
    Evicted(T),
    /// The queue is full of items that are at least as important.
    Full(T),
}

/// A bounded queue of items in priority classes.
///
/// ```
/// use tollgate_core::Timestamp;
/// use tollgate_overload::{PriorityClass, PriorityQueue, PushOutcome};
///
/// let (critical, sheddable) = (PriorityClass::CRITICAL, PriorityClass::new(1).unwrap());
/// let mut queue = PriorityQueue::new();
/// let now = Timestamp::from_secs(1);
/// let tenant = 7;
/// queue.push(now, sheddable, tenant, "batch", 1);
/// assert_eq!(queue.push(now, critical, tenant, "payment", 1), PushOutcome::Evicted("batch"));
/// assert_eq!(queue.pop(now, |_expired| {}), Some("payment"));
/// ```
#[derive(Debug)]
pub struct PriorityQueue<T> {
    classes: [ClassQueue<T>; MAX_CLASSES],
    len: usize,
    /// The wait in an overloaded class.
    short_wait: Nanos,
}

impl<T> PriorityQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self {
            classes: std::array::from_fn(|_| ClassQueue::new()),
            len: 0,
            short_wait: LEAST_WAIT,
        }
    }

    /// Sets the longest wait in an overloaded class. At least 5 ms, at most 100 ms.
    pub fn set_short_wait(&mut self, wait: Nanos) {
        self.short_wait = wait.clamp(LEAST_WAIT, STANDING);
    }

    /// Adds an item of a tenant. The queue holds at most `capacity` items.
    pub fn push(
        &mut self,
        now: Timestamp,
        class: PriorityClass,
        tenant: u64,
        item: T,
        capacity: usize,
    ) -> PushOutcome<T> {
        let mut evicted = None;
        if self.len >= capacity {
            let lower = class.index() + 1;
            let victims = self.classes.iter_mut().skip(lower).rev();
            evicted = victims.filter_map(ClassQueue::evict_oldest).next();
            if evicted.is_none() {
                return PushOutcome::Full(item);
            }
            self.len = self.len.saturating_sub(1);
        }
        let Some(queue) = self.classes.get_mut(class.index()) else {
            return PushOutcome::Full(item);
        };
        queue.push(now, tenant, item);
        self.len = self.len.saturating_add(1);
        match evicted {
            Some(evicted) => PushOutcome::Evicted(evicted),
            None => PushOutcome::Queued,
        }
    }

    /// Takes the next item of the most important class. Passes the items that waited too long to `expired`.
    pub fn pop(&mut self, now: Timestamp, expired: impl FnMut(T)) -> Option<T> {
        if self.len == 0 {
            return None;
        }
        self.expire(now, expired);
        let mut classes = self.classes.iter_mut();
        let item = classes.find_map(|class| class.pop(now))?;
        self.len = self.len.saturating_sub(1);
        Some(item)
    }

    /// Removes the items that waited too long and passes them to `expired`.
    pub fn expire(&mut self, now: Timestamp, mut expired: impl FnMut(T)) {
        let (short_wait, mut removed) = (self.short_wait, 0);
        for class in &mut self.classes {
            let longest = if class.is_overloaded(now, STANDING) {
                short_wait
            } else {
                STANDING
            };
            class.expire(now, longest, |item| {
                removed += 1;
                expired(item);
            });
        }
        self.len = self.len.saturating_sub(removed);
    }

    /// Removes all items.
    pub fn drain(&mut self, mut drained: impl FnMut(T)) {
        for class in &mut self.classes {
            while let Some(item) = class.evict_oldest() {
                drained(item);
            }
        }
        self.len = 0;
    }

    /// The number of items.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there are no items.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The number of items of a class.
    #[must_use]
    pub fn len_of(&self, class: PriorityClass) -> usize {
        self.classes.get(class.index()).map_or(0, ClassQueue::len)
    }

    /// Whether a class has a standing queue.
    #[must_use]
    pub fn is_overloaded(&self, now: Timestamp, class: PriorityClass) -> bool {
        let class = self.classes.get(class.index());
        class.is_some_and(|class| class.is_overloaded(now, STANDING))
    }
}

impl<T> Default for PriorityQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests;
