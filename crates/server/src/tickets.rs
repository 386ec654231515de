//! Tickets that wait for their response: found by an id that nobody can guess, bounded in number and in time.
//!
//! A ticket that was settled is remembered until it would have expired, so that a report which is sent twice is answered
//! twice and carried out once. Must not know: what a ticket settles.

use std::collections::{BTreeSet, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::Ticket;

/// So many tickets are kept. When one more comes, the one that expires first is given up: its places return when their
/// leases end, and what was charged stays charged, so nothing is ever admitted twice for it.
const MOST_TICKETS: usize = 100_000;
/// How long a ticket is kept after it was given or renewed.
pub(crate) const LIFE: Nanos = Nanos::from_secs(600);

/// All tickets that were given.
#[derive(Debug)]
pub(crate) struct Tickets {
    secrets: [RandomState; 2],
    drawn: AtomicU64,
    kept: Mutex<Kept>,
    /// Said when a ticket that was lent is back.
    back: Notify,
    most: usize,
}

/// What is kept of a ticket.
#[derive(Debug)]
struct Slot {
    expires: Timestamp,
    ticket: State,
}

/// Where a ticket is.
#[derive(Debug)]
enum State {
    /// Here.
    Open(Ticket),
    /// With somebody who brings it back in a moment.
    Lent,
    Settled,
}

#[derive(Debug, Default)]
struct Kept {
    slots: HashMap<u128, Slot>,
    /// The same tickets, those that expire first first.
    order: BTreeSet<(Timestamp, u128)>,
    given_up: u64,
}

/// What was found under an id.
#[derive(Debug)]
pub(crate) enum Taken {
    /// The ticket: whoever has it has to settle it.
    Open(Ticket),
    /// It was settled before.
    Before,
    /// There is none: it expired, was given up, or never was.
    Unknown,
}

/// A ticket that is looked at while nobody else has it. It goes back when this is dropped.
#[derive(Debug)]
pub(crate) struct Lent<'t> {
    tickets: &'t Tickets,
    id: u128,
    ticket: Option<Ticket>,
}

impl Default for Tickets {
    fn default() -> Self {
        Self::with_room_for(MOST_TICKETS)
    }
}

impl Tickets {
    pub(crate) fn with_room_for(most: usize) -> Self {
        Self {
            secrets: [RandomState::new(), RandomState::new()],
            drawn: AtomicU64::new(0),
            kept: Mutex::default(),
            back: Notify::new(),
            most,
        }
    }

    /// Keeps a ticket and says under which id.
    pub(crate) fn keep(&self, ticket: Ticket, now: Timestamp) -> u128 {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self
            .secrets
            .each_ref()
            .map(|secret| u128::from(secret.hash_one(count)));
        let id = high << 64 | low;
        let mut kept = self.kept();
        kept.make_room(self.most, now);
        kept.put(id, State::Open(ticket), now);
        id
    }

    /// Takes a ticket to settle it. Only if it is lent there is somebody to wait for, who has it for no longer than a store
    /// is waited for.
    pub(crate) async fn take(&self, id: u128, now: Timestamp) -> Taken {
        self.remove(id, now, || State::Settled).await
    }

    /// Takes an open ticket to look at it, while a store is waited for.
    pub(crate) async fn lend(&self, id: u128, now: Timestamp) -> Option<Lent<'_>> {
        match self.remove(id, now, || State::Lent).await {
            Taken::Open(ticket) => Some(Lent {
                tickets: self,
                id,
                ticket: Some(ticket),
            }),
            Taken::Before | Taken::Unknown => None,
        }
    }

    async fn remove(&self, id: u128, now: Timestamp, left: fn() -> State) -> Taken {
        loop {
            // Before it is looked for: it may come back in between.
            let back = self.back.notified();
            if let Some(taken) = self.kept().take(id, now, left) {
                return taken;
            }
            back.await;
        }
    }

    /// Looks at an open ticket, and keeps it for its whole life from now if `work` answers true.
    pub(crate) fn renew(
        &self,
        id: u128,
        now: Timestamp,
        work: impl FnOnce(&Ticket) -> bool,
    ) -> Option<bool> {
        let mut kept = self.kept();
        let slot = kept.slots.get(&id).filter(|slot| slot.expires > now)?;
        let State::Open(ticket) = &slot.ticket else {
            return None;
        };
        let renewed = work(ticket);
        if renewed && let Some(ticket) = kept.remove(id) {
            kept.put(id, ticket, now);
        }
        Some(renewed)
    }

    /// How many tickets were given up for want of room, and how many are kept.
    pub(crate) fn usage(&self) -> (u64, usize) {
        let kept = self.kept();
        (kept.given_up, kept.slots.len())
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        // Both collections change together or a lookup finds nothing, which is an answer.
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lent<'_> {
    /// The ticket.
    pub(crate) const fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Keeps it for its whole life from now.
    pub(crate) fn renew(mut self, now: Timestamp) {
        self.give_back(Some(now));
    }

    fn give_back(&mut self, renewed: Option<Timestamp>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut kept = self.tickets.kept();
        let slot = kept.slots.get_mut(&self.id);
        // What was given up for want of room meanwhile stays given up.
        if let Some(slot) = slot.filter(|slot| matches!(slot.ticket, State::Lent)) {
            slot.ticket = State::Open(ticket);
            if let Some(now) = renewed
                && let Some(ticket) = kept.remove(self.id)
            {
                kept.put(self.id, ticket, now);
            }
        }
        drop(kept);
        self.tickets.back.notify_waiters();
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        self.give_back(None);
    }
}

impl Kept {
    /// What is found under an id, in whose place the other state is left; `None` while it is lent.
    fn take(&mut self, id: u128, now: Timestamp, left: fn() -> State) -> Option<Taken> {
        let found = self.slots.get_mut(&id).filter(|slot| slot.expires > now);
        let Some(slot) = found else {
            return Some(Taken::Unknown);
        };
        match &mut slot.ticket {
            State::Lent => None,
            State::Settled => Some(Taken::Before),
            open @ State::Open(_) => Some(match std::mem::replace(open, left()) {
                State::Open(ticket) => Taken::Open(ticket),
                State::Lent | State::Settled => Taken::Before,
            }),
        }
    }

    /// Drops what has expired, a few at a time so that nobody pays for everybody, and what is in the way.
    fn make_room(&mut self, most: usize, now: Timestamp) {
        for _ in 0..4 {
            let Some((expires, id)) = self.order.first().copied() else {
                return;
            };
            let is_full = self.slots.len() >= most;
            if expires > now && !is_full {
                return;
            }
            let is_open = !matches!(self.remove(id), None | Some(State::Settled));
            if is_open && expires > now {
                self.given_up = self.given_up.saturating_add(1);
            }
        }
    }

    fn put(&mut self, id: u128, ticket: State, now: Timestamp) {
        let expires = now.after(LIFE);
        self.slots.insert(id, Slot { expires, ticket });
        self.order.insert((expires, id));
    }

    fn remove(&mut self, id: u128) -> Option<State> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&(slot.expires, id));
        Some(slot.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::awaited::at_once;
    use std::pin::pin;
    use tollgate_engine::Engine;
    use tollgate_policy::attributes::{Attribute, Attributes};
    use tollgate_policy::rules::Rules;
    use tollgate_policy::source::Format;
    use tollgate_store::{ManualClock, Memory};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    struct Nothing;

    impl Attributes for Nothing {
        fn get(&self, _: &Attribute) -> Option<&[u8]> {
            None
        }
    }

    fn engine() -> Engine<Memory<ManualClock>> {
        let text = "limits: [{ name: places, concurrency: 1000 }]";
        let policy = tollgate_policy::load(text, "a.yaml", Format::Yaml).unwrap();
        let rules = Rules::compile(&policy, [7; 16]).unwrap();
        let store = Memory::with_clock(1_000, ManualClock::at(NOW)).unwrap();
        Engine::new(rules, store).unwrap()
    }

    /// What is found while nobody has borrowed it.
    fn take(tickets: &Tickets, id: u128, now: Timestamp) -> Taken {
        at_once(pin!(tickets.take(id, now))).unwrap()
    }

    #[tokio::test]
    async fn a_ticket_that_is_lent_is_waited_for_and_comes_back() {
        let (engine, tickets) = (engine(), Tickets::default());
        let id = tickets.keep(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let lent = tickets.lend(id, NOW).await.unwrap();
        assert!(lent.ticket().is_some());
        let settled = tickets.take(id, NOW);
        let (settled, ()) = tokio::join!(settled, async { drop(lent) });
        assert!(matches!(settled, Taken::Open(_)));
        assert!(tickets.lend(id, NOW).await.is_none(), "settled");

        let id = tickets.keep(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let later = NOW.after(Nanos::from_secs(599));
        tickets.lend(id, later).await.unwrap().renew(later);
        let end = NOW.after(LIFE);
        drop(tickets.lend(id, end).await.unwrap());
        assert!(matches!(tickets.take(id, end).await, Taken::Open(_)));
    }

    #[test]
    fn a_ticket_is_taken_once_and_remembered_until_it_expires() {
        let (engine, tickets) = (engine(), Tickets::default());
        let ticket = || engine.decide(&Nothing).take_ticket().unwrap();
        let id = tickets.keep(ticket(), NOW);
        assert!(matches!(take(&tickets, id, NOW), Taken::Open(_)));
        assert!(matches!(take(&tickets, id, NOW), Taken::Before));
        assert!(matches!(take(&tickets, id ^ 1, NOW), Taken::Unknown));
        let end = NOW.after(LIFE);
        assert!(matches!(take(&tickets, id, end), Taken::Unknown));
        let other = tickets.keep(ticket(), NOW);
        assert!(matches!(take(&tickets, other, end), Taken::Unknown));
    }

    #[test]
    fn renewing_keeps_a_ticket_for_its_whole_life_again() {
        let (engine, tickets) = (engine(), Tickets::default());
        let id = tickets.keep(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let later = NOW.after(Nanos::from_secs(599));
        assert_eq!(tickets.renew(id, later, |_| true), Some(true));
        let end = NOW.after(LIFE);
        assert_eq!(tickets.renew(id, end, |_| false), Some(false));
        assert!(matches!(take(&tickets, id, end), Taken::Open(_)));
        assert_eq!(tickets.renew(id, end, |_| true), None, "settled");
    }

    #[test]
    fn the_table_is_bounded_and_the_one_that_expires_first_goes() {
        let (engine, tickets) = (engine(), Tickets::with_room_for(3));
        let keep = |now| tickets.keep(engine.decide(&Nothing).take_ticket().unwrap(), now);
        let at = |seconds| NOW.after(Nanos::from_secs(seconds));
        let ids: Vec<u128> = (0..4).map(|n| keep(at(n))).collect();
        assert_eq!(tickets.usage(), (1, 3));
        assert!(matches!(take(&tickets, ids[0], at(4)), Taken::Unknown));
        assert!(matches!(take(&tickets, ids[1], at(4)), Taken::Open(_)));
        // What is settled or expired makes room without loss.
        keep(at(5));
        keep(at(700));
        assert_eq!(tickets.usage(), (1, 1));
    }
}
