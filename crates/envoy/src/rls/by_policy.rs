//! RLS by a Tollgate policy: every descriptor is a request of its own, and either all of them are charged or none.
//!
//! Must not know: protobuf, how the engine decides.

use std::cell::RefCell;

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{DenialReason, Ticket, Verdict};
use tollgate_http::{HeaderFields, RateLimitItem};
use tollgate_service::{RateLimitService, Transport, with_header_fields};
use tollgate_store::Clock;

use super::descriptor_request::{DescriptorDecision, DescriptorRequest};
use super::limit_status::overall_outcome;
use super::rls_response::{RlsResponse, RlsStatus};
use super::{RlsError, closed_limit_error};
use crate::EnvoyService;
use crate::config::{BadRequest, MAX_DESCRIPTORS, RlsCode, RlsRequest};

impl<C: Clock> EnvoyService<C> {
    pub(super) async fn decide_by_policy<T>(
        &self,
        transport: Transport,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        check(request).map_err(RlsError::BadRequest)?;
        if let [only] = request.descriptors
            && only.limit.is_none()
        {
            let mut all = [self.decide_one(DescriptorRequest::new(request, only)).await];
            self.observe(transport, &all)?;
            let waits = all
                .iter_mut()
                .filter_map(|one| one.verdict.take_wait_ticket());
            let waits = waits.collect();
            return Ok(self.answer_by_policy(&all, &[None], waits, inspect));
        }
        // In a box, so that the future of one descriptor stays small.
        Box::pin(self.decide_all(transport, request, inspect)).await
    }

    /// Decides one descriptor. While the wait queue is full it is peeked first, so that a request that cannot wait is not charged.
    async fn decide_one<'a>(&self, request: DescriptorRequest<'a>) -> DescriptorDecision<'a> {
        let mut request = request;
        if self.service().saturation().is_full() {
            let peeked = DescriptorDecision::peek(request, self.service()).await;
            if peeked.queue_full.is_some() {
                return peeked;
            }
            request = peeked.request;
        }
        let mut verdict = self.charge(&request).await;
        self.release(verdict.take_ticket()).await;
        DescriptorDecision::charged(request, verdict)
    }

    async fn charge(&self, request: &DescriptorRequest<'_>) -> Verdict {
        let options = request.options();
        self.service().check_uncounted(request, options).await
    }

    /// Decides several descriptors. If one is refused, the charges of the others are cancelled.
    async fn decide_all<T>(
        &self,
        transport: Transport,
        request: &RlsRequest<'_>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        let service = self.service();
        // Peek at each first, so that a refused request does not briefly take units from others.
        let mut all: Vec<DescriptorDecision<'_>> = Vec::with_capacity(request.descriptors.len());
        for descriptor in request.descriptors {
            let request = DescriptorRequest::new(request, descriptor);
            all.push(DescriptorDecision::peek(request, service).await);
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        // Descriptors that are refused are charged first: they are refused again, and their penalties and counters apply.
        order.sort_by_key(|index| all.get(*index).is_some_and(DescriptorDecision::is_admitted));
        let mut reserved = ReservedTickets {
            service,
            tickets: Vec::new(),
        };
        let mut is_refused = false;
        for index in order {
            let Some(one) = all.get_mut(index).filter(|one| one.is_charged()) else {
                continue;
            };
            one.verdict = one.request.reserve(service).await;
            reserved.tickets.extend(one.verdict.take_ticket());
            is_refused = !one.verdict.is_admitted();
            if is_refused {
                break;
            }
        }
        is_refused |= all.iter().any(|one| !one.is_admitted());
        let mut overrides = [const { None }; MAX_DESCRIPTORS];
        if !is_refused {
            for (slot, one) in overrides.iter_mut().zip(&all) {
                // On an error `ReservedTickets` refunds the reservations.
                let decided = self.decide_override(request, one.request.descriptor);
                *slot = decided.await?;
                is_refused |=
                    slot.is_some_and(|status: RlsStatus<'_>| status.code == RlsCode::OverLimit);
            }
        }
        let is_waiting = all.iter().any(|one| !one.wait().is_zero());
        let mut waits = Vec::new();
        while let Some(ticket) = reserved.tickets.pop() {
            if is_refused {
                // If the store does not answer, the charge stays.
                let _cancelled = service.cancel(ticket).await;
            } else if is_waiting && !ticket.has_permits() {
                waits.push(ticket);
            } else {
                self.release(Some(ticket)).await;
            }
        }
        let overrides = overrides.get(..all.len()).unwrap_or_default();
        self.observe(transport, &all)?;
        if is_refused {
            for one in all.iter_mut().filter(|one| one.is_admitted()) {
                one.verdict = one.request.peek(service).await;
            }
        } else {
            for one in all.iter_mut().filter(|one| one.request.is_refund()) {
                one.verdict = self.charge(&one.request).await;
            }
        }
        Ok(self.answer_by_policy(&all, overrides, waits, inspect))
    }

    /// Counts and logs one verdict for the whole request: that of the first refused descriptor, or of the first. It fails if a
    /// limit is `closed` while the shared store is unavailable.
    fn observe(
        &self,
        transport: Transport,
        all: &[DescriptorDecision<'_>],
    ) -> Result<(), RlsError> {
        let is_closed = |one: &DescriptorDecision<'_>| {
            one.verdict.degraded().store && one.verdict.reason() == Some(DenialReason::Capacity)
        };
        if all.iter().any(is_closed) {
            return Err(closed_limit_error());
        }
        let binding = all.iter().find(|one| !one.is_admitted()).or(all.first());
        if let Some(one) = binding {
            let is_peek = !one.is_charged();
            self.service().observe(transport, &one.verdict, is_peek);
        }
        Ok(())
    }

    /// Builds the response. `overrides` are the statuses by overrides of descriptors, `waits` what to cancel if the client does not
    /// wait.
    fn answer_by_policy<T>(
        &self,
        all: &[DescriptorDecision<'_>],
        overrides: &[Option<RlsStatus<'_>>],
        waits: Vec<Ticket>,
        inspect: impl FnOnce(&RlsResponse<'_>) -> T,
    ) -> T {
        let mut statuses = [RlsStatus::default(); MAX_DESCRIPTORS];
        let decisions = all.iter().zip(overrides);
        for (slot, (one, by_override)) in statuses.iter_mut().zip(decisions) {
            *slot = by_override.unwrap_or_else(|| one.status());
        }
        let statuses = statuses.get(..all.len()).unwrap_or_default();
        let outcome = overall_outcome(statuses);
        let wait = all.iter().map(DescriptorDecision::wait).max();
        with_header_fields(|fields| {
            match all {
                [only] if only.verdict.is_admitted() == outcome.is_admitted() => {
                    self.service().fields(&only.verdict, fields);
                }
                all => self.render_all(outcome, all, fields),
            }
            inspect(&RlsResponse {
                overall: if outcome.is_admitted() {
                    RlsCode::Ok
                } else {
                    RlsCode::OverLimit
                },
                statuses,
                fields,
                metadata: None,
                wait: wait
                    .filter(|_| outcome.is_admitted())
                    .unwrap_or(Nanos::ZERO),
                wait_tickets: &RefCell::new(waits),
            })
        })
    }

    /// Renders the header fields of several descriptors. A limit that applies to several is sent once, with the least remaining.
    fn render_all(
        &self,
        outcome: Outcome,
        all: &[DescriptorDecision<'_>],
        fields: &mut HeaderFields,
    ) {
        let headers = self.service().headers();
        let by_policy = || {
            all.iter()
                .filter(|one| one.request.descriptor.limit.is_none())
        };
        let caches: Vec<_> = by_policy().map(|one| headers.cache(&one.verdict)).collect();
        let mut merged: Vec<RateLimitItem<'_>> = Vec::new();
        let each = by_policy().zip(&caches);
        for new in each.flat_map(|(one, cache)| headers.rate_limit_items(&one.verdict, cache)) {
            let is_same = |known: &&mut RateLimitItem<'_>| known.policy == new.policy;
            match merged.iter_mut().find(is_same) {
                Some(known) if new.remaining < known.remaining => *known = new,
                Some(_) => {}
                None => merged.push(new),
            }
        }
        self.render(outcome, &merged, fields);
    }

    /// Releases leases at once: Envoy does not report the end of a request, so they cannot be held.
    async fn release(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket.filter(Ticket::has_permits) {
            // No rule counts responses with status 0.
            let _released = self.service().respond(ticket, &0_u16).await;
        }
    }
}

fn check(request: &RlsRequest<'_>) -> Result<(), BadRequest> {
    if request.domain.is_empty() {
        return Err(BadRequest::EmptyDomain);
    }
    match request.descriptors.len() {
        0 => Err(BadRequest::NoDescriptors),
        count if count > MAX_DESCRIPTORS => Err(BadRequest::TooManyDescriptors { count }),
        _ => Ok(()),
    }
}

/// The reservations of one request. If this is dropped before all are settled, because the client disconnected or a
/// descriptor could not be decided, the others are refunded.
struct ReservedTickets<'s, C: Clock> {
    service: &'s RateLimitService<C>,
    tickets: Vec<Ticket>,
}

impl<C: Clock> Drop for ReservedTickets<'_, C> {
    fn drop(&mut self) {
        for ticket in self.tickets.drain(..) {
            self.service.abandon(ticket);
        }
    }
}
