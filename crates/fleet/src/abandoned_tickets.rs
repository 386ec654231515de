//! Tickets of decisions that nobody waits for any more: a client left between the charge and the verdict.
//!
//! They are cancelled in the background, so that a place which was taken returns soon and not when its lease ends. Bounded;
//! beyond the bound places return with their leases. Must not know: how tickets are cancelled.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_engine::{Decision, Ticket};

/// The most tickets that wait to be cancelled.
const MAX_TICKETS: usize = 4_096;

/// Tickets that have to be cancelled.
#[derive(Debug, Default)]
pub(crate) struct AbandonedTickets {
    tickets: Mutex<VecDeque<Ticket>>,
}

impl AbandonedTickets {
    pub(crate) fn push(&self, ticket: Ticket) {
        let mut tickets = self.lock();
        if tickets.len() < MAX_TICKETS {
            tickets.push_back(ticket);
        }
    }

    pub(crate) fn pop(&self) -> Option<Ticket> {
        self.lock().pop_front()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<Ticket>> {
        // Tickets are put in and taken out whole.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A decision under way. If this is dropped before the decision is made, its ticket is kept to be cancelled.
pub(crate) struct AbandonGuard<'d, 'a> {
    pub(crate) decision: &'d mut Decision<'a>,
    pub(crate) abandoned: &'d AbandonedTickets,
    pub(crate) is_decided: bool,
}

impl Drop for AbandonGuard<'_, '_> {
    fn drop(&mut self) {
        if !self.is_decided
            && let Some(ticket) = self.decision.abandon()
        {
            self.abandoned.push(ticket);
        }
    }
}
