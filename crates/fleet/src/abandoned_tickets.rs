//! Tickets that nobody waits for: of clients that disconnected before the verdict, and of requests that have ended.
//!
//! A background task settles them, so that an acquired permit returns soon and not when its lease expires. The queue is
//! bounded; beyond the bound, permits return with their leases. Must not know: how tickets are settled.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tollgate_engine::{Decision, ResponseSummary, Ticket};

/// The most queued tickets.
const MAX_TICKETS: usize = 4_096;

/// A ticket, and the response to settle it with. Without one it is cancelled.
pub(crate) type QueuedTicket = (Ticket, Option<ResponseSummary>);

/// Tickets to cancel or to settle.
#[derive(Debug, Default)]
pub(crate) struct AbandonedTickets {
    tickets: Mutex<VecDeque<QueuedTicket>>,
}

impl AbandonedTickets {
    pub(crate) fn push(&self, ticket: Ticket, response: Option<ResponseSummary>) {
        let mut tickets = self.lock();
        if tickets.len() < MAX_TICKETS {
            tickets.push_back((ticket, response));
        }
    }

    /// Takes out the oldest tickets, at most so many.
    pub(crate) fn take(&self, most: usize) -> Vec<QueuedTicket> {
        let mut tickets = self.lock();
        let most = most.min(tickets.len());
        tickets.drain(..most).collect()
    }

    fn lock(&self) -> MutexGuard<'_, VecDeque<QueuedTicket>> {
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
            self.abandoned.push(ticket, None);
        }
    }
}
