//! Places in queues whose requests no longer wait, until they can be given back.
//!
//! Later requests were promised turns that count the places before them. So a place is given back whole while it is the end of its
//! queue. One in the middle is given back as far as it is dearer than all that stands behind it, and the rest is kept until the places
//! behind are gone, at the latest until its turn. In a fleet nobody knows all requests of a queue, so the store decides what comes back
//! of a place in the middle, and keeps that it did (`QueueDeparture`).
//! Must not know: how a place is given back, sockets.

mod queues;
#[cfg(test)]
mod tests;

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tollgate_engine::{Ticket, run_local};
use tollgate_store::Clock;

use crate::saturation::WaitPermit;
use crate::service::RateLimitService;
use queues::{AbandonedPlace, AbandonedQueues, Leaving, QueueKey};

/// The most store calls of one round in a fleet.
const MAX_CALLS_PER_ROUND: usize = 64;

/// Abandoned places by queue.
#[derive(Debug, Default)]
pub(crate) struct AbandonedWaits(Mutex<AbandonedQueues>);

impl AbandonedWaits {
    fn lock(&self) -> MutexGuard<'_, AbandonedQueues> {
        // A place is inserted and removed whole; a wrong count of places is only a wrong bound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
        let mut queues = self.abandoned_waits.lock();
        let has_fleet = self.fleet().is_some();
        for wait in waits {
            if !has_fleet || !queues.is_full(now) {
                queues.insert(wait);
            }
        }
        if has_fleet {
            return;
        }
        // The lock is held: two threads that each hold a place of one queue would each find the other's behind it.
        while let Some((queue, place)) = queues.take_due(now) {
            self.leave_queue(&mut queues, queue, place);
        }
    }

    /// Gives back what can be given back of one place in a queue of the memory store.
    fn leave_queue(&self, queues: &mut AbandonedQueues, queue: QueueKey, place: AbandonedPlace) {
        let leave = |leaving: Leaving| {
            let charged = place.charged;
            let mut settlement = place.wait.leaving(leaving.end, charged, leaving.kept);
            run_local(&mut settlement, self.engine().store());
            settlement.queue_end()
        };
        let first = queues.first_try(&queue, &place);
        if first.kept == place.charged {
            return queues.put_back(queue, place, self.now());
        }
        match leave(first) {
            None => queues.gone(queue),
            Some(end) if end < first.end => queues.given_back(queue, place, first, end),
            Some(end) => {
                let second = queues.second_try(&queue, &place, end);
                let shortened = second.and_then(|second| Some((second, leave(second)?)));
                match shortened {
                    Some((second, end)) if end < second.end => {
                        queues.given_back(queue, place, second, end);
                    }
                    // A request has come meanwhile, or as much stands behind the place as it is worth.
                    _ => queues.put_back(queue, place, self.now()),
                }
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
            let Some((queue, place)) = due else {
                return;
            };
            let mut departure = place.wait.departure(place.charged);
            engine.run(&mut departure).await;
            let is_behind = departure.is_behind();
            drop(departure);
            self.abandoned_waits
                .lock()
                .departed(queue, place, is_behind, self.now());
        }
    }
}
