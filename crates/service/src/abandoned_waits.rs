//! Places in queues whose requests no longer wait, until they can be given back.
//!
//! A place can be given back only while it is the end of its queue, because later requests were promised later turns. Clients
//! leave in any order, so a place in the middle is kept until the places behind it are gone, and at the latest until its turn.
//! Must not know: how a place is given back, sockets.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{Ticket, WaitTicket, run_local};
use tollgate_store::{Clock, LimitId};

use crate::saturation::WaitPermit;
use crate::service::RateLimitService;

/// The most places that are kept. Further ones stay taken until their turn.
const MAX_PLACES: usize = 10_000;
/// The most store calls of one round in a fleet.
const MAX_CALLS_PER_ROUND: usize = 64;
/// How often all queues are tried again: other nodes may have given back the places behind.
const RETRY_INTERVAL: Nanos = Nanos::SECOND;

type QueueKey = (LimitId, Box<[u8]>);

/// Abandoned places by queue.
#[derive(Debug, Default)]
pub(crate) struct AbandonedWaits(Mutex<AbandonedPlaces>);

#[derive(Debug, Default)]
struct AbandonedPlaces {
    /// Of each queue the places by their marks: the last one is nearest to the end.
    queues: HashMap<QueueKey, BTreeMap<u64, WaitTicket>>,
    /// Queues whose last place may be their end now.
    due: VecDeque<QueueKey>,
    places: usize,
    retry_at: Timestamp,
}

impl AbandonedWaits {
    fn lock(&self) -> MutexGuard<'_, AbandonedPlaces> {
        // A place is inserted and removed whole; a wrong count of places is only a wrong bound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AbandonedPlaces {
    /// Keeps a place. Where there is no room it is kept only if its queue can be tried at once.
    fn insert(&mut self, wait: WaitTicket, now: Timestamp) {
        if self.places >= MAX_PLACES {
            self.remove_past(now);
        }
        if self.places >= MAX_PLACES {
            return;
        }
        let (limit, key) = wait.queue();
        let queue = (limit, key.into());
        let places = self.queues.entry(queue).or_default();
        let queue = (limit, key.into());
        if places.insert(wait.mark(), wait).is_none() {
            self.places = self.places.saturating_add(1);
        }
        self.due.push_back(queue);
    }

    /// Takes the last place of the next queue that may have come to its end.
    fn take_due(&mut self, now: Timestamp) -> Option<(QueueKey, WaitTicket)> {
        while let Some(queue) = self.due.pop_front() {
            if let Some(wait) = self.take_last(&queue)
                && wait.turn() > now
            {
                return Some((queue, wait));
            }
        }
        None
    }

    /// The place of this queue that is nearest to the end.
    fn take_last(&mut self, queue: &QueueKey) -> Option<WaitTicket> {
        let places = self.queues.get_mut(queue)?;
        let (_, wait) = places.pop_last()?;
        if places.is_empty() {
            self.queues.remove(queue);
        }
        self.places = self.places.saturating_sub(1);
        Some(wait)
    }

    /// A place came back: the one before it may be the end now.
    fn given_back(&mut self, queue: QueueKey) {
        self.due.push_front(queue);
    }

    /// Requests stand behind a place: it is tried again when they may have left.
    fn put_back(&mut self, queue: QueueKey, wait: WaitTicket) {
        let places = self.queues.entry(queue).or_default();
        if places.insert(wait.mark(), wait).is_none() {
            self.places = self.places.saturating_add(1);
        }
    }

    /// Tries every queue again, once in a while.
    fn retry_all(&mut self, now: Timestamp) {
        if now >= self.retry_at {
            self.retry_at = now.after(RETRY_INTERVAL);
            self.remove_past(now);
            self.due = self.queues.keys().cloned().collect();
        }
    }

    /// Forgets places whose turn has come.
    fn remove_past(&mut self, now: Timestamp) {
        self.queues.retain(|_, places| {
            places.retain(|_, wait| wait.turn() > now);
            !places.is_empty()
        });
        self.places = self.queues.values().map(BTreeMap::len).sum();
    }
}

impl<C: Clock> RateLimitService<C> {
    /// Takes a place in the wait queue for a request that the verdict makes wait. If the permit is dropped before
    /// [`complete`](WaitPermit::complete), the request did not wait until its turn, and its charges are given back, with
    /// those of the ticket that was issued for it.
    pub fn acquire_wait(
        self: &Arc<Self>,
        wait_tickets: impl IntoIterator<Item = Ticket>,
        issued: Option<u128>,
    ) -> WaitPermit
    where
        C: 'static,
    {
        let service = Arc::clone(self);
        let wait_tickets: Vec<Ticket> = wait_tickets.into_iter().collect();
        self.saturation().acquire().on_abandon(move || {
            let issued = issued.and_then(|id| service.tickets.take_open(id, service.now()));
            for ticket in wait_tickets.into_iter().chain(issued) {
                service.abandon(ticket);
            }
        })
    }

    /// Gives back the places of a ticket in queues: at once over memory, in the background with a fleet. The other charges
    /// stay in the ticket.
    pub(crate) fn cancel_waits(&self, ticket: &mut Ticket) {
        let now = self.now();
        let waits = ticket.take_waits(now);
        if waits.is_empty() {
            return;
        }
        let mut places = self.abandoned_waits.lock();
        for wait in waits {
            places.insert(wait, now);
        }
        if self.fleet().is_some() {
            return;
        }
        // The lock is held: two threads that each hold a place of one queue would each find the other's behind it.
        while let Some((queue, wait)) = places.take_due(now) {
            let mut cancellation = wait.cancellation();
            run_local(&mut cancellation, self.engine().store());
            let is_behind = cancellation.is_behind();
            drop(cancellation);
            match is_behind {
                true => places.put_back(queue, wait),
                false => places.given_back(queue),
            }
        }
    }

    /// Gives back places in queues that the fleet's store keeps. To be called again and again.
    pub(crate) async fn cancel_fleet_waits(&self) {
        let Some(engine) = self.fleet_engine() else {
            return;
        };
        self.abandoned_waits.lock().retry_all(self.now());
        for _ in 0..MAX_CALLS_PER_ROUND {
            let due = self.abandoned_waits.lock().take_due(self.now());
            let Some((queue, wait)) = due else {
                return;
            };
            let mut cancellation = wait.cancellation();
            engine.run(&mut cancellation).await;
            let is_behind = cancellation.is_behind();
            drop(cancellation);
            let mut places = self.abandoned_waits.lock();
            match is_behind {
                true => places.put_back(queue, wait),
                // Also if the store did not answer: it may have given the place back, and to another request since.
                false => places.given_back(queue),
            }
        }
    }
}
