//! An admitted request until its response has ended, for transports that learn of the end.
//!
//! The charge of a request that never began is given back. Afterwards every way to end settles the request once: the head of
//! the response corrects costs and counts statuses, the end of the body releases permits. Dropping it is an end, too. Must not
//! know: HTTP libraries, how a transport learns of the end.

#[cfg(test)]
mod fleet_tests;
#[cfg(test)]
mod model;
mod permit_table;
#[cfg(test)]
mod tests;

/// What [`PermitTable`] is built of. The model checker has another set.
mod sync {
    pub(super) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(super) use std::sync::{Mutex, MutexGuard, PoisonError};
}

pub(crate) use permit_table::PermitTable;

use std::fmt;
use std::sync::Arc;

use tollgate_engine::{Response, ResponseSummary, Ticket, Verdict};
use tollgate_overload::Completion;
use tollgate_store::Clock;

use crate::overload::OverloadPermit;
use crate::service::RateLimitService;

/// The status of a request that ended without a response. No policy can name it.
const NO_RESPONSE: u16 = 0;
/// Responses from this status on are fast or slow for other reasons than load.
const FIRST_SERVER_ERROR: u16 = 500;
/// The status of a request whose handler panicked.
const PANICKED: u16 = 500;

/// Leases that one round renews. The next round goes on, so that other work of a fleet node is not kept waiting.
const MAX_RENEWALS_PER_ROUND: usize = 256;

/// An admitted request that has something to settle.
///
/// Call [`start`](Self::start) before the work, [`respond`](Self::respond) with the head of the response, and drop it when the
/// body has ended.
#[must_use = "dropping it ends the request"]
pub struct OpenRequest<C: Clock> {
    service: Arc<RateLimitService<C>>,
    phase: Phase,
    body_bytes: u64,
    /// The place under the adaptive concurrency limit.
    pub(crate) overload: Option<OverloadPermit>,
    /// Whether the response shows what the work behind can do.
    is_served: bool,
}

enum Phase {
    /// The work has not begun.
    Waiting(Ticket),
    /// The work goes on. Permits are in the table under the number.
    Running {
        head: Option<Ticket>,
        body: Option<BodyTicket>,
    },
    /// The body is being sent.
    Responding { body: BodyTicket, status: u16 },
    /// Everything is settled.
    Settled,
}

/// What is settled at the end of the body.
enum BodyTicket {
    /// With permits: the table renews their leases meanwhile.
    Held(u64),
    /// Without permits.
    Own(Ticket),
}

impl<C: Clock> OpenRequest<C> {
    /// A request without anything to settle.
    pub(crate) const fn settled(service: Arc<RateLimitService<C>>) -> Self {
        Self {
            service,
            phase: Phase::Settled,
            body_bytes: 0,
            overload: None,
            is_served: false,
        }
    }

    /// The work begins: from now on its charge stays, whatever becomes of it, and the leases of its permits are renewed.
    pub fn start(&mut self) {
        if !matches!(self.phase, Phase::Waiting(_)) {
            return;
        }
        let Phase::Waiting(mut ticket) = std::mem::replace(&mut self.phase, Phase::Settled) else {
            return;
        };
        let body = ticket
            .take_until_body_end()
            .map(|body| match body.shortest_lease() {
                Some(lease) => {
                    let now = self.service.now();
                    BodyTicket::Held(self.service.permits.insert(body, now, lease))
                }
                None => BodyTicket::Own(body),
            });
        let head = (!ticket.is_empty()).then_some(ticket);
        self.phase = Phase::Running { head, body };
    }

    /// Whether the request holds permits.
    #[must_use]
    pub fn has_permits(&self) -> bool {
        match &self.phase {
            Phase::Waiting(ticket) => ticket.has_permits(),
            Phase::Running { body, .. } => matches!(body, Some(BodyTicket::Held(_))),
            Phase::Responding { body, .. } => matches!(body, BodyTicket::Held(_)),
            Phase::Settled => false,
        }
    }

    /// Settles what the head of the response decides. Returns the request if something waits for the end of the body.
    #[must_use = "dropping it ends the body"]
    pub fn respond(mut self: Box<Self>, response: &dyn Response) -> Option<Box<Self>> {
        self.start();
        self.is_served = response.status() < FIRST_SERVER_ERROR;
        if let Phase::Running { head, body } = std::mem::replace(&mut self.phase, Phase::Settled) {
            if let Some(head) = head {
                self.service.settle_with(head, response);
            }
            self.phase = match body {
                Some(body) => Phase::Responding {
                    body,
                    status: response.status(),
                },
                None => Phase::Settled,
            };
        }
        let waits_for_body = !matches!(self.phase, Phase::Settled) || self.overload.is_some();
        waits_for_body.then_some(self)
    }

    /// Counts bytes of the body.
    pub fn add_body_bytes(&mut self, bytes: usize) {
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        self.body_bytes = self.body_bytes.saturating_add(bytes);
    }

    fn end(&mut self) {
        let summary = |status| ResponseSummary::new(status, Some(self.body_bytes));
        let (head, body, status) = match std::mem::replace(&mut self.phase, Phase::Settled) {
            Phase::Settled => return,
            Phase::Waiting(ticket) => return self.service.abandon(ticket),
            Phase::Responding { body, status } => (None, Some(body), status),
            Phase::Running { head, body } => {
                let status = match std::thread::panicking() {
                    true => PANICKED,
                    false => NO_RESPONSE,
                };
                (head, body, status)
            }
        };
        let body = body.and_then(|body| match body {
            BodyTicket::Own(ticket) => Some(ticket),
            BodyTicket::Held(number) => self.service.permits.remove(number),
        });
        for ticket in head.into_iter().chain(body) {
            self.service.settle_with(ticket, &summary(status));
        }
    }
}

impl<C: Clock> Drop for OpenRequest<C> {
    fn drop(&mut self) {
        if let Some(permit) = self.overload.take() {
            let completion = match self.is_served {
                true => Completion::Served,
                false => Completion::Ignored,
            };
            permit.complete(self.service.now(), completion);
        }
        self.end();
    }
}

impl<C: Clock> fmt::Debug for OpenRequest<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OpenRequest")
            .field("has_permits", &self.has_permits())
            .field("body_bytes", &self.body_bytes)
            .finish_non_exhaustive()
    }
}

impl<C: Clock> RateLimitService<C> {
    /// The request of a verdict, until its response has ended. `None` if nothing has to be settled.
    ///
    /// In a box: most requests have nothing to settle, and what carries a request about stays small.
    #[inline]
    pub fn open_request(self: &Arc<Self>, verdict: &mut Verdict) -> Option<Box<OpenRequest<C>>> {
        Some(self.open_ticket(verdict.take_ticket()?))
    }

    #[inline(never)]
    fn open_ticket(self: &Arc<Self>, ticket: Ticket) -> Box<OpenRequest<C>> {
        let mut request = OpenRequest::settled(Arc::clone(self));
        request.phase = Phase::Waiting(ticket);
        Box::new(request)
    }

    /// The number of requests that hold permits, and how many of them lost one because its lease expired.
    #[must_use]
    pub fn held_permits(&self) -> (usize, u64) {
        self.permits.usage()
    }

    /// Renews the leases of permits that are due, over memory. Call it before a decision: nobody else looks at leases, so
    /// none is ever found expired.
    #[inline]
    pub fn renew_due_permits(&self) {
        if !self.permits.is_empty() {
            self.renew_permits();
        }
    }

    #[inline(never)]
    fn renew_permits(&self) {
        let now = self.now();
        let engine = self.engine();
        self.permits
            .renew_due(now, |ticket| engine.reacquire(ticket).unwrap_or(false));
    }

    /// Renews the leases of permits that are due, in the fleet's store. To be called again and again.
    pub(crate) async fn renew_fleet_permits(&self) {
        let Some(engine) = self.fleet_engine() else {
            return;
        };
        for _ in 0..MAX_RENEWALS_PER_ROUND {
            let Some((number, ticket)) = self.permits.take_due(self.now()) else {
                return;
            };
            // If the store does not answer, the lease goes on and the next round tries again.
            let is_held = engine.renew(&ticket).await.unwrap_or(true);
            if let Some(ended) = self.permits.put_back(number, ticket, self.now(), is_held) {
                self.settle_with(ended, &ResponseSummary::new(NO_RESPONSE, None));
            }
        }
    }

    /// Settles a ticket with a response: at once over memory, in the background with a fleet.
    fn settle_with(&self, ticket: Ticket, response: &dyn Response) {
        match self.fleet() {
            Some(fleet) => {
                let summary = ticket.summarize(response);
                fleet.settle_later(ticket, summary);
            }
            None => {
                // If the memory store refuses a part, its leases expire.
                let _settled = self.engine().respond(ticket, response);
            }
        }
    }
}
