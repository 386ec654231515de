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
#[derive(Debug)]
pub(crate) struct AbandonedWaits(Mutex<AbandonedPlaces>);

#[derive(Debug, Default)]
struct AbandonedPlaces {
    capacity: usize,
    /// Of each queue the places by their marks: the last one is nearest to the end.
    queues: HashMap<QueueKey, BTreeMap<u64, WaitTicket>>,
    /// Queues whose last place may be their end now.
    due: VecDeque<QueueKey>,
    places: usize,
    retry_at: Timestamp,
}

impl Default for AbandonedWaits {
    fn default() -> Self {
        Self(Mutex::new(AbandonedPlaces {
            capacity: MAX_PLACES,
            ..AbandonedPlaces::default()
        }))
    }
}

impl AbandonedWaits {
    fn lock(&self) -> MutexGuard<'_, AbandonedPlaces> {
        // A place is inserted and removed whole; a wrong count of places is only a wrong bound.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AbandonedPlaces {
    /// Whether as many places are kept as may be.
    fn is_full(&mut self, now: Timestamp) -> bool {
        if self.places >= self.capacity {
            self.remove_past(now);
        }
        self.places >= self.capacity
    }

    /// Keeps a place to be tried.
    fn insert(&mut self, wait: WaitTicket) {
        let (limit, key) = wait.queue();
        let queue: QueueKey = (limit, key.into());
        self.due.push_back(queue.clone());
        self.keep(queue, wait);
    }

    fn keep(&mut self, queue: QueueKey, wait: WaitTicket) {
        let places = self.queues.entry(queue).or_default();
        if places.insert(wait.mark(), wait).is_none() {
            self.places = self.places.saturating_add(1);
        }
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

    /// Requests stand behind a place: it is tried again when they may have left, if there is room to keep it.
    fn put_back(&mut self, queue: QueueKey, wait: WaitTicket, now: Timestamp) {
        if !self.is_full(now) {
            self.keep(queue, wait);
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
        let has_fleet = self.fleet().is_some();
        for wait in waits {
            if !has_fleet || !places.is_full(now) {
                places.insert(wait);
            }
        }
        if has_fleet {
            return;
        }
        // The lock is held: two threads that each hold a place of one queue would each find the other's behind it.
        while let Some((queue, wait)) = places.take_due(now) {
            let mut cancellation = wait.cancellation();
            run_local(&mut cancellation, self.engine().store());
            let is_behind = cancellation.is_behind();
            drop(cancellation);
            match is_behind {
                true => places.put_back(queue, wait, now),
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
                true => places.put_back(queue, wait, self.now()),
                // Also if the store did not answer: it may have given the place back, and to another request since.
                false => places.given_back(queue),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Secret, Transport};
    use tollgate_core::Outcome;
    use tollgate_engine::CheckOptions;
    use tollgate_policy::attributes::{Attribute, Attributes};
    use tollgate_policy::source::SourceFormat;
    use tollgate_store::ManualClock;
    use tollgate_testkit::seeded_rng::SeededRng;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);
    const INTERVAL: u64 = 1_000_000_000;

    struct Nobody;

    impl Attributes for Nobody {
        fn get(&self, _: &Attribute) -> Option<&[u8]> {
            None
        }
    }

    type TestService = Arc<RateLimitService<Arc<ManualClock>>>;

    fn service(burst: u64) -> (TestService, Arc<ManualClock>) {
        let text = format!("limits: [{{ name: one, rate: 1/s, burst: {burst}, wait: 20s }}]");
        let policy = tollgate_policy::load(&text, "p.yaml", SourceFormat::Yaml).unwrap();
        let clock = Arc::new(ManualClock::at(START));
        let service = RateLimitService::new(&policy, 100, Arc::clone(&clock), Secret::random());
        (Arc::new(service.unwrap()), clock)
    }

    /// Whether requests that proceed at these times keep to the limit in every window.
    fn is_within_limit(mut proceeded: Vec<u64>, burst: u64) -> bool {
        proceeded.sort_unstable();
        let mut full_at = 0_u64;
        proceeded.into_iter().all(|at| {
            full_at = full_at.max(at) + INTERVAL;
            full_at - at <= burst * INTERVAL
        })
    }

    /// Requests arrive and waiting ones leave at random; `give_up` says how. Answers when the others proceed.
    fn run(
        seed: u64,
        burst: u64,
        give_up: impl Fn(&TestService, Ticket),
    ) -> (Vec<u64>, usize, usize) {
        let mut random = SeededRng::new(seed);
        let (service, clock) = service(burst);
        let (mut proceeded, mut waiting) = (Vec::new(), Vec::new());
        let (mut gone, mut denied) = (0, 0);
        for _ in 0..400 {
            let now = service.now();
            match random.below(10) {
                0..5 => {
                    let decided =
                        service.check_local(Transport::Http, &Nobody, CheckOptions::default());
                    let mut verdict = decided.unwrap();
                    match verdict.outcome() {
                        Outcome::Allow => proceeded.push(now.as_nanos()),
                        Outcome::Wait(wait) => {
                            let ticket = verdict.take_wait_ticket().unwrap();
                            waiting.push((now.after(wait), ticket));
                        }
                        _ => denied += 1,
                    }
                }
                5..9 if !waiting.is_empty() => {
                    let index = random.below(waiting.len() as u64);
                    let (turn, ticket) = waiting.swap_remove(usize::try_from(index).unwrap());
                    if turn > now {
                        gone += 1;
                        give_up(&service, ticket);
                    } else {
                        proceeded.push(turn.as_nanos());
                    }
                }
                _ => clock.advance(Nanos::from_millis(random.below(700))),
            }
        }
        proceeded.extend(waiting.into_iter().map(|(turn, _)| turn.as_nanos()));
        (proceeded, gone, denied)
    }

    /// I-01 with waits that are given up in any order.
    #[test]
    fn i01_abandoned_waits_never_admit_more_than_the_limit() {
        let (mut gone, mut denied) = (0, 0);
        for seed in 0..50 {
            for burst in [1, 2, 5] {
                let (proceeded, left, refused) = run(seed, burst, |service, ticket| {
                    service.abandon(ticket);
                });
                gone += left;
                denied += refused;
                assert!(
                    is_within_limit(proceeded, burst),
                    "seed {seed}, burst {burst}"
                );
            }
        }
        assert!(gone > 1_000 && denied > 10, "{gone} left, {denied} denied");
    }

    /// The refund of a plain bucket, which does not know of requests behind, breaks the limit: two proceed at one time.
    #[test]
    fn control_a_refund_from_the_middle_of_the_queue_is_found() {
        let refund = |service: &TestService, ticket| {
            let _cancelled = service.engine().cancel(ticket);
        };
        let is_broken = |seed| !is_within_limit(run(seed, 1, refund).0, 1);
        assert!((0..50).any(is_broken));
    }

    #[test]
    fn i06_kept_places_are_bounded_and_forgotten_at_their_turn() {
        let (service, clock) = service(1);
        let mut waits = Vec::new();
        for _ in 0..21 {
            let decided = service.check_local(Transport::Http, &Nobody, CheckOptions::default());
            waits.extend(decided.unwrap().take_wait_ticket());
        }
        // The last one stays, so that nothing comes back. There is room for five of nineteen.
        let last = waits.pop();
        service.abandoned_waits.lock().capacity = 5;
        for ticket in waits {
            service.abandon(ticket);
        }
        let mut places = service.abandoned_waits.lock();
        assert_eq!((places.places, places.due.len()), (5, 0));
        assert!(places.is_full(service.now()));
        // The first three have had their turns.
        clock.advance(Nanos::from_secs(3));
        assert!(!places.is_full(service.now()), "they make room");
        assert_eq!(places.places, 2);
        drop(places);
        // The places before the last one were not kept, so only its own comes back.
        service.abandon(last.unwrap());
        let places = service.abandoned_waits.lock();
        assert_eq!((places.places, places.due.len()), (2, 0));
    }
}
