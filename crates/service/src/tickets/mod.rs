//! Tickets: a transport issues one with an admitted request and settles it when the response is known.
//!
//! Tickets stay in the process that issued them; what they settle may be shared by a fleet. Must not know: how reports are
//! transferred.

mod table;

pub(crate) use table::{SavedTicketSlot, TicketTable};
pub use table::{TICKET_LIFETIME, TakenTicket};

use tollgate_engine::{Response, Ticket, Verdict};
use tollgate_store::{Clock, StoreError};

use crate::service::RateLimitService;

impl<C: Clock> RateLimitService<C> {
    /// Keeps the verdict's ticket and returns its id. `None` if nothing has to be settled.
    pub fn issue_ticket(&self, verdict: &mut Verdict) -> Option<u128> {
        let ticket = verdict.take_ticket()?;
        Some(self.tickets.issue(ticket, self.now()))
    }

    /// Takes a ticket to settle it.
    pub async fn take_ticket(&self, id: u128) -> TakenTicket {
        self.tickets.take(id, self.now()).await
    }

    /// Extends the leases of an open ticket and the ticket's lifetime. Returns whether all leases are still held; `None` if
    /// there is no such ticket.
    ///
    /// # Errors
    /// The store did not answer.
    pub async fn renew_ticket(&self, id: u128) -> Result<Option<bool>, StoreError> {
        let now = self.now();
        let Some(fleet) = self.fleet_engine() else {
            // Under the table's lock, so that no other report finds the ticket borrowed.
            let mut failure = None;
            let held = self.tickets.renew(id, now, |ticket| {
                let renewed = self.engine().renew(ticket);
                renewed.unwrap_or_else(|error| {
                    failure = Some(error);
                    false
                })
            });
            return failure.map_or(Ok(held), Err);
        };
        let Some(borrowed) = self.tickets.borrow(id, now).await else {
            return Ok(None);
        };
        let Some(ticket) = borrowed.ticket() else {
            return Ok(None);
        };
        let held = fleet.renew(ticket).await?;
        if held {
            borrowed.renew(now);
        }
        Ok(Some(held))
    }

    /// Settles a request at its actual cost.
    ///
    /// # Errors
    /// The store failed to carry out all of it.
    pub async fn settle(&self, ticket: Ticket, cost: u64) -> Result<(), StoreError> {
        match self.fleet_engine() {
            Some(fleet) => fleet.settle(ticket, cost).await,
            None => self.engine().settle(ticket, cost),
        }
    }

    /// Refunds a request whose client disconnected: at once over memory, in the background with a fleet.
    pub fn abandon(&self, mut ticket: Ticket) {
        self.cancel_waits(&mut ticket);
        match self.fleet() {
            Some(fleet) => fleet.abandon(ticket),
            None => {
                // If the memory store does not refund it, its lease expires.
                let _cancelled = self.engine().cancel(ticket);
            }
        }
    }

    /// Cancels a request: refunds its charge and releases its leases. A place in a queue is given back when no request stands
    /// behind it, with a fleet in the background.
    ///
    /// # Errors
    /// The store failed to carry out all of it.
    pub async fn cancel(&self, mut ticket: Ticket) -> Result<(), StoreError> {
        self.cancel_waits(&mut ticket);
        match self.fleet_engine() {
            Some(fleet) => fleet.cancel(ticket).await,
            None => self.engine().cancel(ticket),
        }
    }

    /// Releases the leases of a request and charges limits that depend on the response.
    ///
    /// # Errors
    /// The store failed to carry out all of it.
    pub async fn respond(&self, ticket: Ticket, response: &dyn Response) -> Result<(), StoreError> {
        match self.fleet_engine() {
            Some(fleet) => fleet.respond(ticket, response).await,
            None => self.engine().respond(ticket, response),
        }
    }

    /// The number of tickets that were dropped because the table was full, and of tickets in the table.
    #[must_use]
    pub fn ticket_usage(&self) -> (u64, usize) {
        self.tickets.usage()
    }
}
