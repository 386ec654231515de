//! The table of tickets by their ids. Ids cannot be guessed; the table is bounded in number and in time.
//!
//! A settled ticket is remembered until it would have expired, so that a repeated report is answered again and carried out
//! once. Must not know: what a ticket settles.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::{SavedTicket, Ticket};

/// The capacity of the table. If it is full, the ticket that expires first is dropped. Its leases expire by themselves
/// and its charge stays, so nothing is admitted twice.
const MAX_TICKETS: usize = 100_000;
/// The lifetime of a ticket after it was issued or renewed.
pub const TICKET_LIFETIME: Nanos = Nanos::from_secs(600);

/// All issued tickets.
#[derive(Debug)]
pub(crate) struct TicketTable {
    secrets: [RandomState; 2],
    issued: AtomicU64,
    slots: Mutex<TicketSlots>,
    /// Notified when a borrowed ticket is returned.
    returned: Notify,
    capacity: usize,
}

/// A ticket in the table.
#[derive(Debug)]
struct TicketSlot {
    expires: Timestamp,
    ticket: SlotState,
}

/// The state of a ticket.
#[derive(Debug)]
enum SlotState {
    /// In the table.
    Open(Ticket),
    /// A [`BorrowedTicket`] has it and will return it.
    Borrowed,
    Settled,
}

#[derive(Debug, Default)]
struct TicketSlots {
    slots: HashMap<u128, TicketSlot>,
    /// The same tickets, ordered by expiry.
    order: BTreeSet<(Timestamp, u128)>,
    dropped: u64,
}

/// A ticket of the table as it is saved for a restart. Without a ticket it was settled.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct SavedTicketSlot {
    id: Box<str>,
    expires: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) ticket: Option<SavedTicket>,
}

/// The result of taking a ticket by its id.
#[derive(Debug)]
pub enum TakenTicket {
    /// The ticket. The caller has to settle it.
    Open(Ticket),
    /// It was settled before.
    AlreadySettled,
    /// There is none: it expired, was dropped because the table was full, or was never issued.
    Unknown,
}

/// A ticket that is used exclusively. Dropping this returns it to the table.
#[derive(Debug)]
pub(crate) struct BorrowedTicket<'t> {
    tickets: &'t TicketTable,
    id: u128,
    ticket: Option<Ticket>,
}

impl Default for TicketTable {
    fn default() -> Self {
        Self::with_capacity(MAX_TICKETS)
    }
}

impl TicketTable {
    pub(crate) fn with_capacity(most: usize) -> Self {
        Self {
            secrets: [RandomState::new(), RandomState::new()],
            issued: AtomicU64::new(0),
            slots: Mutex::default(),
            returned: Notify::new(),
            capacity: most,
        }
    }

    /// Adds a ticket and returns its id.
    pub(crate) fn issue(&self, ticket: Ticket, now: Timestamp) -> u128 {
        let count = self.issued.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self
            .secrets
            .each_ref()
            .map(|secret| u128::from(secret.hash_one(count)));
        let id = high << 64 | low;
        let mut slots = self.slots();
        slots.make_room(self.capacity, now);
        slots.put(id, SlotState::Open(ticket), now);
        id
    }

    /// Takes a ticket to settle it. While the ticket is borrowed this waits, at most as long as a call of the store.
    pub(crate) async fn take(&self, id: u128, now: Timestamp) -> TakenTicket {
        self.remove(id, now, || SlotState::Settled).await
    }

    /// Takes an open ticket without waiting. `None` if it is borrowed, settled or unknown.
    pub(crate) fn take_open(&self, id: u128, now: Timestamp) -> Option<Ticket> {
        match self.slots().take(id, now, || SlotState::Settled) {
            Some(TakenTicket::Open(ticket)) => Some(ticket),
            _ => None,
        }
    }

    /// Borrows an open ticket for the time of a call of the store.
    pub(crate) async fn borrow(&self, id: u128, now: Timestamp) -> Option<BorrowedTicket<'_>> {
        match self.remove(id, now, || SlotState::Borrowed).await {
            TakenTicket::Open(ticket) => Some(BorrowedTicket {
                tickets: self,
                id,
                ticket: Some(ticket),
            }),
            TakenTicket::AlreadySettled | TakenTicket::Unknown => None,
        }
    }

    async fn remove(&self, id: u128, now: Timestamp, left: fn() -> SlotState) -> TakenTicket {
        loop {
            // Created before the lookup, because the ticket may be returned in between.
            let back = self.returned.notified();
            if let Some(taken) = self.slots().take(id, now, left) {
                return taken;
            }
            back.await;
        }
    }

    /// Calls `work` with an open ticket, and renews the ticket's lifetime if `work` returns true.
    pub(crate) fn renew(
        &self,
        id: u128,
        now: Timestamp,
        work: impl FnOnce(&Ticket) -> bool,
    ) -> Option<bool> {
        let mut slots = self.slots();
        let slot = slots.slots.get(&id).filter(|slot| slot.expires > now)?;
        let SlotState::Open(ticket) = &slot.ticket else {
            return None;
        };
        let renewed = work(ticket);
        if renewed && let Some(ticket) = slots.remove(id) {
            slots.put(id, ticket, now);
        }
        Some(renewed)
    }

    /// The ids of all open tickets.
    pub(crate) fn open_ids(&self) -> HashSet<u128> {
        let slots = self.slots();
        let is_open = |slot: &TicketSlot| matches!(slot.ticket, SlotState::Open(_));
        let open = slots.slots.iter().filter(|(_, slot)| is_open(slot));
        open.map(|(id, _)| *id).collect()
    }

    /// The tickets for a restart: settled ones, and open ones that were open `before`.
    pub(crate) fn save(&self, before: &HashSet<u128>, now: Timestamp) -> Vec<SavedTicketSlot> {
        let slots = self.slots();
        let live = slots.slots.iter().filter(|(_, slot)| slot.expires > now);
        live.filter_map(|(id, slot)| {
            let ticket = match &slot.ticket {
                SlotState::Open(ticket) if before.contains(id) => Some(ticket.save()?),
                SlotState::Settled => None,
                SlotState::Open(_) | SlotState::Borrowed => return None,
            };
            Some(SavedTicketSlot {
                id: format!("{id:032x}").into(),
                expires: slot.expires.as_nanos(),
                ticket,
            })
        })
        .collect()
    }

    /// Puts a saved ticket back, if there is room and time left for it.
    pub(crate) fn restore(
        &self,
        saved: SavedTicketSlot,
        now: Timestamp,
        restore: impl FnOnce(SavedTicket) -> Option<Ticket>,
    ) {
        // A clock that went back must not keep a ticket for longer than a new one.
        let expires = Timestamp::from_nanos(saved.expires).min(now.after(TICKET_LIFETIME));
        let state = match saved.ticket {
            None => Some(SlotState::Settled),
            Some(ticket) => restore(ticket).map(SlotState::Open),
        };
        let mut slots = self.slots();
        if let (Ok(id), Some(ticket)) = (u128::from_str_radix(&saved.id, 16), state)
            && expires > now
            && slots.slots.len() < self.capacity
            && !slots.slots.contains_key(&id)
        {
            slots.slots.insert(id, TicketSlot { expires, ticket });
            slots.order.insert((expires, id));
        }
    }

    /// The number of tickets that were dropped because the table was full, and of tickets in the table.
    pub(crate) fn usage(&self) -> (u64, usize) {
        let slots = self.slots();
        (slots.dropped, slots.slots.len())
    }

    fn slots(&self) -> MutexGuard<'_, TicketSlots> {
        // If a panic left only one collection changed, lookups find nothing, which is a valid result.
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl BorrowedTicket<'_> {
    /// The ticket.
    pub(crate) const fn ticket(&self) -> Option<&Ticket> {
        self.ticket.as_ref()
    }

    /// Returns the ticket with a renewed lifetime.
    pub(crate) fn renew(mut self, now: Timestamp) {
        self.return_ticket(Some(now));
    }

    fn return_ticket(&mut self, renewed: Option<Timestamp>) {
        let Some(ticket) = self.ticket.take() else {
            return;
        };
        let mut slots = self.tickets.slots();
        let slot = slots.slots.get_mut(&self.id);
        // A ticket that was dropped from the full table meanwhile stays dropped.
        if let Some(slot) = slot.filter(|slot| matches!(slot.ticket, SlotState::Borrowed)) {
            slot.ticket = SlotState::Open(ticket);
            if let Some(now) = renewed
                && let Some(ticket) = slots.remove(self.id)
            {
                slots.put(self.id, ticket, now);
            }
        }
        drop(slots);
        self.tickets.returned.notify_waiters();
    }
}

impl Drop for BorrowedTicket<'_> {
    fn drop(&mut self) {
        self.return_ticket(None);
    }
}

impl TicketSlots {
    /// Takes the ticket of an id and leaves the state `left`. `None` while the ticket is borrowed.
    fn take(&mut self, id: u128, now: Timestamp, left: fn() -> SlotState) -> Option<TakenTicket> {
        let found = self.slots.get_mut(&id).filter(|slot| slot.expires > now);
        let Some(slot) = found else {
            return Some(TakenTicket::Unknown);
        };
        match &mut slot.ticket {
            SlotState::Borrowed => None,
            SlotState::Settled => Some(TakenTicket::AlreadySettled),
            open @ SlotState::Open(_) => Some(match std::mem::replace(open, left()) {
                SlotState::Open(ticket) => TakenTicket::Open(ticket),
                SlotState::Borrowed | SlotState::Settled => TakenTicket::AlreadySettled,
            }),
        }
    }

    /// Drops up to four tickets: expired ones, and the one that expires first if the table is full.
    fn make_room(&mut self, most: usize, now: Timestamp) {
        for _ in 0..4 {
            let Some((expires, id)) = self.order.first().copied() else {
                return;
            };
            let is_full = self.slots.len() >= most;
            if expires > now && !is_full {
                return;
            }
            let is_open = !matches!(self.remove(id), None | Some(SlotState::Settled));
            if is_open && expires > now {
                self.dropped = self.dropped.saturating_add(1);
            }
        }
    }

    fn put(&mut self, id: u128, ticket: SlotState, now: Timestamp) {
        let expires = now.after(TICKET_LIFETIME);
        self.slots.insert(id, TicketSlot { expires, ticket });
        self.order.insert((expires, id));
    }

    fn remove(&mut self, id: u128) -> Option<SlotState> {
        let slot = self.slots.remove(&id)?;
        self.order.remove(&(slot.expires, id));
        Some(slot.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};
    use tollgate_engine::Engine;
    use tollgate_policy::attributes::{Attribute, Attributes};
    use tollgate_policy::rules::Rules;
    use tollgate_policy::source::SourceFormat;
    use tollgate_store::{ManualClock, MemoryStore};

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    struct Nothing;

    impl Attributes for Nothing {
        fn get(&self, _: &Attribute) -> Option<&[u8]> {
            None
        }
    }

    fn engine() -> Engine<MemoryStore<ManualClock>> {
        let text = "limits: [{ name: places, concurrency: 1000 }]";
        let policy = tollgate_policy::load(text, "a.yaml", SourceFormat::Yaml).unwrap();
        let rules = Rules::compile(&policy, [7; 16]).unwrap();
        let store = MemoryStore::with_clock(1_000, ManualClock::at(NOW)).unwrap();
        Engine::new(rules, store).unwrap()
    }

    /// Takes a ticket that is not borrowed.
    fn take(tickets: &TicketTable, id: u128, now: Timestamp) -> TakenTicket {
        let work = pin!(tickets.take(id, now));
        match work.poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(taken) => taken,
            Poll::Pending => panic!("the ticket is borrowed"),
        }
    }

    #[tokio::test]
    async fn a_ticket_that_is_borrowed_is_waited_for_and_comes_back() {
        let (engine, tickets) = (engine(), TicketTable::default());
        let id = tickets.issue(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let borrowed = tickets.borrow(id, NOW).await.unwrap();
        assert!(borrowed.ticket().is_some());
        let settled = tickets.take(id, NOW);
        let (settled, ()) = tokio::join!(settled, async { drop(borrowed) });
        assert!(matches!(settled, TakenTicket::Open(_)));
        assert!(tickets.borrow(id, NOW).await.is_none(), "settled");

        let id = tickets.issue(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let later = NOW.after(Nanos::from_secs(599));
        tickets.borrow(id, later).await.unwrap().renew(later);
        let end = NOW.after(TICKET_LIFETIME);
        drop(tickets.borrow(id, end).await.unwrap());
        assert!(matches!(tickets.take(id, end).await, TakenTicket::Open(_)));
    }

    #[test]
    fn a_ticket_is_taken_once_and_remembered_until_it_expires() {
        let (engine, tickets) = (engine(), TicketTable::default());
        let ticket = || engine.decide(&Nothing).take_ticket().unwrap();
        let id = tickets.issue(ticket(), NOW);
        assert!(matches!(take(&tickets, id, NOW), TakenTicket::Open(_)));
        assert!(matches!(
            take(&tickets, id, NOW),
            TakenTicket::AlreadySettled
        ));
        assert!(matches!(take(&tickets, id ^ 1, NOW), TakenTicket::Unknown));
        let end = NOW.after(TICKET_LIFETIME);
        assert!(matches!(take(&tickets, id, end), TakenTicket::Unknown));
        let other = tickets.issue(ticket(), NOW);
        assert!(matches!(take(&tickets, other, end), TakenTicket::Unknown));
    }

    #[test]
    fn renewing_keeps_a_ticket_for_its_whole_life_again() {
        let (engine, tickets) = (engine(), TicketTable::default());
        let id = tickets.issue(engine.decide(&Nothing).take_ticket().unwrap(), NOW);
        let later = NOW.after(Nanos::from_secs(599));
        assert_eq!(tickets.renew(id, later, |_| true), Some(true));
        let end = NOW.after(TICKET_LIFETIME);
        assert_eq!(tickets.renew(id, end, |_| false), Some(false));
        assert!(matches!(take(&tickets, id, end), TakenTicket::Open(_)));
        assert_eq!(tickets.renew(id, end, |_| true), None, "settled");
    }

    #[test]
    fn the_table_is_bounded_and_the_one_that_expires_first_goes() {
        let (engine, tickets) = (engine(), TicketTable::with_capacity(3));
        let keep = |now| tickets.issue(engine.decide(&Nothing).take_ticket().unwrap(), now);
        let at = |seconds| NOW.after(Nanos::from_secs(seconds));
        let ids: Vec<u128> = (0..4).map(|n| keep(at(n))).collect();
        assert_eq!(tickets.usage(), (1, 3));
        assert!(matches!(
            take(&tickets, ids[0], at(4)),
            TakenTicket::Unknown
        ));
        assert!(matches!(
            take(&tickets, ids[1], at(4)),
            TakenTicket::Open(_)
        ));
        // Settled and expired tickets are dropped without being counted.
        keep(at(5));
        keep(at(700));
        assert_eq!(tickets.usage(), (1, 1));
    }
}
