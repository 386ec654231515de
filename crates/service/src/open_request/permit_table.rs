//! The tickets of requests that hold permits, in the order in which their leases have to be renewed.
//!
//! A ticket is taken out while its lease is renewed in a store that is waited for. If its request ends meanwhile, the
//! renewer gets the ticket back and settles it, so every ticket is settled once. Must not know: how tickets are renewed or
//! settled.

use std::collections::{BTreeSet, HashMap};

use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::Ticket;

use super::sync::{AtomicU64, AtomicUsize, Mutex, MutexGuard, Ordering, PoisonError};

/// A lease is renewed after this fraction of it, so that two attempts may fail.
const RENEWALS_PER_LEASE: u64 = 3;

/// Tickets with permits. `T` is [`Ticket`]; tests use something smaller.
#[derive(Debug)]
pub(crate) struct PermitTable<T = Ticket> {
    /// The number of entries, so that requests without permits need no lock.
    len: AtomicUsize,
    /// Permits whose leases expired while their requests went on.
    lost: AtomicU64,
    entries: Mutex<Entries<T>>,
}

#[derive(Debug)]
struct Entries<T> {
    next_number: u64,
    by_number: HashMap<u64, PermitEntry<T>>,
    by_due: BTreeSet<(Timestamp, u64)>,
}

#[derive(Debug)]
struct PermitEntry<T> {
    /// `None` while the lease is renewed.
    ticket: Option<T>,
    lease: Nanos,
    due: Timestamp,
}

impl<T> Default for PermitTable<T> {
    fn default() -> Self {
        Self {
            len: AtomicUsize::new(0),
            lost: AtomicU64::new(0),
            entries: Mutex::new(Entries {
                next_number: 0,
                by_number: HashMap::new(),
                by_due: BTreeSet::new(),
            }),
        }
    }
}

impl<T> PermitTable<T> {
    /// Adds a ticket whose shortest lease was acquired just now. Returns its number.
    pub(crate) fn insert(&self, ticket: T, now: Timestamp, lease: Nanos) -> u64 {
        let mut entries = self.lock();
        let number = entries.next_number;
        entries.next_number = number.wrapping_add(1);
        let due = renewal_due(now, lease);
        let entry = PermitEntry {
            ticket: Some(ticket),
            lease,
            due,
        };
        entries.by_number.insert(number, entry);
        entries.by_due.insert((due, number));
        self.len.store(entries.by_number.len(), Ordering::Release);
        number
    }

    /// Removes a ticket whose request has ended. `None` if its lease is being renewed: then the renewer settles it.
    pub(crate) fn remove(&self, number: u64) -> Option<T> {
        let mut entries = self.lock();
        let entry = entries.by_number.remove(&number)?;
        entries.by_due.remove(&(entry.due, number));
        self.len.store(entries.by_number.len(), Ordering::Release);
        entry.ticket
    }

    /// Whether there are no tickets.
    pub(crate) fn is_empty(&self) -> bool {
        self.len.load(Ordering::Acquire) == 0
    }

    /// The number of tickets, and of permits whose leases expired while their requests went on.
    pub(crate) fn usage(&self) -> (usize, u64) {
        let len = self.len.load(Ordering::Acquire);
        (len, self.lost.load(Ordering::Relaxed))
    }

    /// Renews all leases that are due. `renew` returns whether the permits are still held. The lock is held meanwhile, so no
    /// request ends between the look and the renewal.
    pub(crate) fn renew_due(&self, now: Timestamp, renew: impl Fn(&T) -> bool) {
        let mut entries = self.lock();
        while let Some(number) = entries.pop_due(now) {
            let Some(entry) = entries.by_number.get_mut(&number) else {
                continue;
            };
            let is_held = entry.ticket.as_ref().is_none_or(&renew);
            self.count_lost(is_held);
            entries.schedule(number, now);
        }
    }

    /// Takes out a ticket whose lease is due. [`put_back`](Self::put_back) it.
    pub(crate) fn take_due(&self, now: Timestamp) -> Option<(u64, T)> {
        let mut entries = self.lock();
        loop {
            let number = entries.pop_due(now)?;
            let entry = entries.by_number.get_mut(&number);
            if let Some(ticket) = entry.and_then(|entry| entry.ticket.take()) {
                return Some((number, ticket));
            }
        }
    }

    /// Puts a ticket back after a renewal. If its request has ended meanwhile, the ticket is returned and has to be settled.
    pub(crate) fn put_back(
        &self,
        number: u64,
        ticket: T,
        now: Timestamp,
        is_held: bool,
    ) -> Option<T> {
        self.count_lost(is_held);
        let mut entries = self.lock();
        let Some(entry) = entries.by_number.get_mut(&number) else {
            return Some(ticket);
        };
        entry.ticket = Some(ticket);
        entries.schedule(number, now);
        None
    }

    fn count_lost(&self, is_held: bool) {
        if !is_held {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Entries<T>> {
        // Every change of the maps is whole; a poisoned lock leaves them usable.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Entries<T> {
    /// Takes the number of an entry that is due out of the schedule.
    fn pop_due(&mut self, now: Timestamp) -> Option<u64> {
        let (_, number) = *self.by_due.first().filter(|(due, _)| *due <= now)?;
        self.by_due.pop_first();
        Some(number)
    }

    fn schedule(&mut self, number: u64, now: Timestamp) {
        if let Some(entry) = self.by_number.get_mut(&number) {
            entry.due = renewal_due(now, entry.lease);
            let due = entry.due;
            self.by_due.insert((due, number));
        }
    }
}

fn renewal_due(now: Timestamp, lease: Nanos) -> Timestamp {
    now.after(Nanos::from_nanos(lease.as_nanos() / RENEWALS_PER_LEASE))
}
