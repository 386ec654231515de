//! The abandoned places of all queues, and which of them can be given back.
//!
//! Must not know: stores, the service.

use std::collections::{BTreeMap, HashMap, VecDeque};

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::WaitTicket;
use tollgate_store::LimitId;

/// The most places that are kept. Further ones stay taken until their turn.
const MAX_PLACES: usize = 10_000;
/// How often all queues are tried again: other nodes may have given back the places behind.
const RETRY_INTERVAL: Nanos = Nanos::SECOND;

pub(super) type QueueKey = (LimitId, Box<[u8]>);

/// Abandoned places by queue.
#[derive(Debug)]
pub(super) struct AbandonedQueues {
    pub(super) capacity: usize,
    queues: HashMap<QueueKey, AbandonedQueue>,
    /// Queues with a place that may be given back now: this one, or the last one.
    pub(super) due: VecDeque<(QueueKey, Option<u64>)>,
    pub(super) places: usize,
    retry_at: Timestamp,
}

#[derive(Debug, Default)]
struct AbandonedQueue {
    /// By their marks: the last one is nearest to the end.
    places: BTreeMap<u64, AbandonedPlace>,
    shortening: Option<Shortening>,
}

/// A place that was abandoned.
#[derive(Debug)]
pub(super) struct AbandonedPlace {
    pub(super) wait: WaitTicket,
    /// The units that are still charged for it.
    pub(super) charged: u64,
}

/// A queue that was shortened in the middle: its end no longer says what the requests behind were promised.
#[derive(Clone, Copy, Debug)]
struct Shortening {
    /// Where the queue would end. A request with a mark above it came later.
    promised_end: u64,
    /// The end of the queue, if no request has come since.
    end: u64,
}

/// Which part of a place can be given back if the queue ends at `end`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) end: u64,
    /// The units that stay charged, because requests behind were promised turns that count them.
    pub(super) kept: u64,
}

impl Default for AbandonedQueues {
    fn default() -> Self {
        Self {
            capacity: MAX_PLACES,
            queues: HashMap::new(),
            due: VecDeque::new(),
            places: 0,
            retry_at: Timestamp::EPOCH,
        }
    }
}

impl AbandonedPlace {
    /// What can be given back if requests behind take this much of the queue.
    fn leaving(&self, end: u64, behind: u64) -> Leaving {
        let kept = self.wait.units_in(behind).min(self.charged);
        Leaving { end, kept }
    }
}

impl AbandonedQueues {
    /// Whether as many places are kept as may be.
    pub(super) fn is_full(&mut self, now: Timestamp) -> bool {
        if self.places >= self.capacity {
            self.remove_past(now);
        }
        self.places >= self.capacity
    }

    /// Keeps a place to be tried: also one in the middle may come back in part.
    pub(super) fn insert(&mut self, wait: WaitTicket) {
        let (limit, key) = wait.queue();
        let queue: QueueKey = (limit, key.into());
        self.due.push_back((queue.clone(), Some(wait.mark())));
        let charged = wait.cost();
        self.keep(queue, AbandonedPlace { wait, charged });
    }

    fn keep(&mut self, queue: QueueKey, place: AbandonedPlace) {
        let queue = self.queues.entry(queue).or_default();
        if queue.places.insert(place.wait.mark(), place).is_none() {
            self.places = self.places.saturating_add(1);
        }
    }

    /// Takes the next place that may be given back.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Option<(QueueKey, AbandonedPlace)> {
        while let Some((queue, mark)) = self.due.pop_front() {
            if let Some(place) = self.take(&queue, mark)
                && place.wait.turn() >= now
            {
                return Some((queue, place));
            }
        }
        None
    }

    /// The place with this mark, or the one that is nearest to the end.
    fn take(&mut self, key: &QueueKey, mark: Option<u64>) -> Option<AbandonedPlace> {
        let queue = self.queues.get_mut(key)?;
        let place = match mark {
            Some(mark) => queue.places.remove(&mark)?,
            None => queue.places.pop_last()?.1,
        };
        self.places = self.places.saturating_sub(1);
        if queue.places.is_empty() && queue.shortening.is_none() {
            self.queues.remove(key);
        }
        Some(place)
    }

    /// What can be given back of this place, as far as is known without the end of its queue.
    pub(super) fn first_try(&self, queue: &QueueKey, place: &AbandonedPlace) -> Leaving {
        let mark = place.wait.mark();
        match self.shortening(queue, mark) {
            Some(shortening) => {
                place.leaving(shortening.end, shortening.promised_end.saturating_sub(mark))
            }
            None => place.leaving(mark, 0),
        }
    }

    /// What can be given back of this place in the middle, now that the end of its queue is known.
    pub(super) fn second_try(
        &self,
        queue: &QueueKey,
        place: &AbandonedPlace,
        end: u64,
    ) -> Option<Leaving> {
        let mark = place.wait.mark();
        // Requests came after the queue was shortened: how much stands behind this place is no longer known.
        let is_unknown = self.shortening(queue, mark).is_some();
        let leaving = place.leaving(end, end.saturating_sub(mark));
        (!is_unknown && leaving.kept < place.charged).then_some(leaving)
    }

    /// The shortening of this queue, if it concerns a place with this mark.
    fn shortening(&self, queue: &QueueKey, mark: u64) -> Option<Shortening> {
        let shortening = self.queues.get(queue)?.shortening?;
        (mark <= shortening.promised_end).then_some(shortening)
    }

    /// A place or a part of it came back, and its queue ends at `end` now.
    pub(super) fn given_back(
        &mut self,
        key: QueueKey,
        mut place: AbandonedPlace,
        leaving: Leaving,
        end: u64,
    ) {
        let (mark, price) = (place.wait.mark(), place.wait.price());
        let known = self.shortening(&key, mark);
        let is_last = known.map_or(leaving.end, |known| known.promised_end) == mark;
        let promised_end = match known {
            _ if is_last => mark.saturating_sub(price),
            Some(known) => known.promised_end,
            None => leaving.end,
        };
        if !is_last || known.is_some() {
            let shortening = Shortening { promised_end, end };
            let queue = self.queues.entry(key.clone()).or_default();
            queue.shortening = (promised_end > end).then_some(shortening);
        }
        if is_last {
            self.due.push_front((key, None));
        } else {
            place.charged = leaving.kept;
            self.keep(key, place);
        }
    }

    /// Nothing came back: the place is tried again when the requests behind it may have left, if there is room to keep it.
    pub(super) fn put_back(&mut self, queue: QueueKey, place: AbandonedPlace, now: Timestamp) {
        if !self.is_full(now) {
            self.keep(queue, place);
        }
    }

    /// The place is gone, or may be: the one before it may be the last one now.
    pub(super) fn gone(&mut self, queue: QueueKey) {
        self.due.push_front((queue, None));
    }

    /// A place in a fleet's queue came back, or requests stand behind it.
    pub(super) fn departed(
        &mut self,
        queue: QueueKey,
        place: AbandonedPlace,
        is_behind: bool,
        now: Timestamp,
    ) {
        match is_behind {
            true => self.put_back(queue, place, now),
            false => self.gone(queue),
        }
    }

    /// Tries every queue again, once in a while.
    pub(super) fn retry_all(&mut self, now: Timestamp) {
        if now >= self.retry_at {
            self.retry_at = now.after(RETRY_INTERVAL);
            self.remove_past(now);
            self.due = self.queues.keys().map(|key| (key.clone(), None)).collect();
        }
    }

    /// Forgets places whose turn has come, and queues that have been served.
    fn remove_past(&mut self, now: Timestamp) {
        self.queues.retain(|_, queue| {
            queue.places.retain(|_, place| place.wait.turn() >= now);
            let is_served = |one: &Shortening| one.promised_end <= now.as_nanos();
            queue.shortening = queue.shortening.filter(|one| !is_served(one));
            !queue.places.is_empty() || queue.shortening.is_some()
        });
        self.places = self.queues.values().map(|queue| queue.places.len()).sum();
    }
}
