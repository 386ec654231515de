//! Tickets of abandoned decisions: the client disconnected between the charge and the verdict.
//!
//! A background task cancels them, so that an acquired permit returns soon and not when its lease expires. The queue is
//! bounded; beyond the bound, permits return with their leases. Must not know: how tickets are cancelled.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_engine::{Decision, Ticket};

/// The most queued tickets.
const MAX_TICKETS: usize = 4_096;

/// Tickets to cancel.
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
        // Tickets are pushed and popped whole, so a poisoned lock leaves the queue consistent.
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Guards a decision in progress. If it is dropped before the verdict is ready, the decision's ticket is queued for
/// cancelling.
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
