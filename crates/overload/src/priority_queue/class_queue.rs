//! The queue of one class: a bounded number of sub-queues that are served in turn, so that tenants get equal parts.
//!
//! Must not know: other classes, how long an item may wait.

use std::collections::VecDeque;

use tollgate_core::{Nanos, Timestamp};

use super::tenant_hash::{QUEUES, hand};

/// A class has more items than it can serve if one expires for this many that are taken.
const LEAST_EXPIRED: u32 = 4;

/// The items of one class that wait.
#[derive(Debug)]
pub(super) struct ClassQueue<T> {
    queues: Vec<VecDeque<Entry<T>>>,
    /// The sub-queues that have items, in the order of their turns.
    turns: VecDeque<usize>,
    len: usize,
    /// The instant at which the class stopped being empty. `None` after an item was taken and none was left, unless the class
    /// expires a large part of its items.
    not_empty_since: Option<Timestamp>,
    recent: RecentCounts,
    /// The instant at which the last item expired.
    expired_at: Timestamp,
    /// No item arrived before this instant.
    oldest: Timestamp,
    is_newest_first: bool,
}

/// How many items were taken from the class and expired in it since `since`, for about a standing time.
#[derive(Debug)]
struct RecentCounts {
    since: Timestamp,
    taken: u32,
    expired: u32,
    /// Whether the counts before had at least a quarter as many expired items as taken ones.
    has_excess: bool,
}

#[derive(Debug)]
struct Entry<T> {
    arrived: Timestamp,
    item: T,
}

impl<T> ClassQueue<T> {
    pub(super) const fn new() -> Self {
        Self {
            queues: Vec::new(),
            turns: VecDeque::new(),
            len: 0,
            not_empty_since: None,
            recent: RecentCounts {
                since: Timestamp::EPOCH,
                taken: 0,
                expired: 0,
                has_excess: false,
            },
            expired_at: Timestamp::EPOCH,
            oldest: Timestamp::EPOCH,
            is_newest_first: false,
        }
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Whether the class was not empty for so long.
    pub(super) fn is_overloaded(&self, now: Timestamp, standing: Nanos) -> bool {
        let has_stood = |since| now.since(since) >= standing;
        self.len > 0 && self.not_empty_since.is_some_and(has_stood)
    }

    pub(super) fn push(&mut self, now: Timestamp, tenant: u64, item: T) {
        if self.queues.is_empty() {
            // A class that is never used costs nothing.
            self.queues.resize_with(QUEUES, VecDeque::new);
        }
        if self.len == 0 {
            self.oldest = now;
            // A class that is only empty because its items expired stays overloaded for a while.
            let has_just_expired = now.since(self.expired_at) < super::STANDING;
            self.not_empty_since = self
                .not_empty_since
                .filter(|_| has_just_expired)
                .or(Some(now));
        }
        let length = |queue: &usize| self.queues.get(*queue).map_or(usize::MAX, VecDeque::len);
        let Some(place) = hand(tenant).into_iter().min_by_key(length) else {
            return;
        };
        let Some(queue) = self.queues.get_mut(place) else {
            return;
        };
        if queue.is_empty() {
            self.turns.push_back(place);
        }
        queue.push_back(Entry { arrived: now, item });
        self.len = self.len.saturating_add(1);
    }

    /// Takes an item of the sub-queue whose turn it is: the oldest, or the newest while the class is overloaded.
    pub(super) fn pop(&mut self, now: Timestamp) -> Option<T> {
        let place = self.turns.pop_front()?;
        let queue = self.queues.get_mut(place)?;
        let entry = if self.is_newest_first {
            queue.pop_back()
        } else {
            queue.pop_front()
        }?;
        if !queue.is_empty() {
            self.turns.push_back(place);
        }
        self.len = self.len.saturating_sub(1);
        let has_excess = self.recent.record_taken(now);
        if self.len == 0 && !has_excess {
            self.not_empty_since = None;
        }
        Some(entry.item)
    }

    /// Takes the oldest item of the longest sub-queue.
    pub(super) fn evict_oldest(&mut self) -> Option<T> {
        let length = |place: &usize| self.queues.get(*place).map_or(0, VecDeque::len);
        let longest = self.turns.iter().copied().max_by_key(length)?;
        let queue = self.queues.get_mut(longest)?;
        let entry = queue.pop_front()?;
        if queue.is_empty() {
            self.turns.retain(|place| *place != longest);
        }
        self.len = self.len.saturating_sub(1);
        if self.len == 0 {
            self.not_empty_since = None;
        }
        Some(entry.item)
    }

    /// Removes the items that waited for `longest`.
    pub(super) fn expire(&mut self, now: Timestamp, longest: Nanos, mut expired: impl FnMut(T)) {
        if self.len == 0 {
            return;
        }
        self.is_newest_first = longest < super::STANDING;
        if now.since(self.oldest) < longest {
            return;
        }
        let (mut removed, mut oldest) = (0, now);
        for place in &self.turns {
            let Some(queue) = self.queues.get_mut(*place) else {
                continue;
            };
            while let Some(entry) = queue.pop_front_if(|entry| now.since(entry.arrived) >= longest)
            {
                removed += 1;
                expired(entry.item);
            }
            if let Some(entry) = queue.front() {
                oldest = oldest.min(entry.arrived);
            }
        }
        self.oldest = oldest;
        if removed > 0 {
            let queues = &self.queues;
            self.turns
                .retain(|place| queues.get(*place).is_some_and(|queue| !queue.is_empty()));
            self.expired_at = now;
            self.recent.record_expired(removed);
            self.len = self.len.saturating_sub(removed);
        }
    }
}

impl RecentCounts {
    /// Counts an item that was taken. Returns whether the class has more items than it can serve.
    ///
    /// Then the class stays overloaded, although a burst of places empties it for a moment. Otherwise it would collect items for
    /// a standing time, and shed them all at once.
    fn record_taken(&mut self, now: Timestamp) -> bool {
        self.taken = self.taken.saturating_add(1);
        if now.since(self.since) >= super::STANDING {
            self.has_excess = self.expired > self.taken / LEAST_EXPIRED;
            (self.since, self.taken, self.expired) = (now, 0, 0);
        }
        self.has_excess
    }

    fn record_expired(&mut self, items: usize) {
        let items = u32::try_from(items).unwrap_or(u32::MAX);
        self.expired = self.expired.saturating_add(items);
    }
}
