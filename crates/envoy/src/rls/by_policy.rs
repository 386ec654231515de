//! RLS by a policy of ours: every descriptor is a request of its own, and all of them are charged or none.
//!
//! Must not know: protobuf, how the engine decides.

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
        see: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        check(request).map_err(RlsError::BadRequest)?;
        if let [only] = request.descriptors
            && only.limit.is_none()
        {
            let all = [self.decide_one(DescriptorRequest::new(request, only)).await];
            self.observe(transport, &all)?;
            return Ok(self.answer_by_policy(&all, &[None], see));
        }
        // In a box, so that the future of one descriptor stays small.
        Box::pin(self.decide_all(transport, request, see)).await
    }

    /// One descriptor. While the wait queue is full it is peeked at first: what cannot wait is not charged.
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

    /// Several descriptors: if one is refused, what the others were charged is cancelled.
    async fn decide_all<T>(
        &self,
        transport: Transport,
        request: &RlsRequest<'_>,
        see: impl FnOnce(&RlsResponse<'_>) -> T + Send,
    ) -> Result<T, RlsError> {
        let service = self.service();
        // First a peek at each, so that a request that is refused does not take from others for a moment what it will not
        // get.
        let mut all: Vec<DescriptorDecision<'_>> = Vec::with_capacity(request.descriptors.len());
        for descriptor in request.descriptors {
            let request = DescriptorRequest::new(request, descriptor);
            all.push(DescriptorDecision::peek(request, service).await);
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        // A descriptor that refuses is charged first: it refuses again, and its penalties and counters see it.
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
            for (place, one) in overrides.iter_mut().zip(&all) {
                // On an error what was reserved is given back.
                let decided = self.decide_override(request, one.request.descriptor);
                *place = decided.await?;
                is_refused |=
                    place.is_some_and(|status: RlsStatus<'_>| status.code == RlsCode::OverLimit);
            }
        }
        while let Some(ticket) = reserved.tickets.pop() {
            if is_refused {
                // What a store that answers no more keeps, it keeps.
                let _cancelled = service.cancel(ticket).await;
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
        Ok(self.answer_by_policy(&all, overrides, see))
    }

    /// Counts and logs one verdict for the whole request: that of the first descriptor that is refused, or of the first.
    /// It is an error if a limit is closed while the shared store is away.
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

    /// Makes the answer. `overrides` are the statuses by limits that came with descriptors.
    fn answer_by_policy<T>(
        &self,
        all: &[DescriptorDecision<'_>],
        overrides: &[Option<RlsStatus<'_>>],
        see: impl FnOnce(&RlsResponse<'_>) -> T,
    ) -> T {
        let mut statuses = [RlsStatus::default(); MAX_DESCRIPTORS];
        let answers = all.iter().zip(overrides);
        for (place, (one, by_override)) in statuses.iter_mut().zip(answers) {
            *place = by_override.unwrap_or_else(|| one.status());
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
            see(&RlsResponse {
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
            })
        })
    }

    /// The header fields of several descriptors. A limit that applies to two of them is sent once, where less is left.
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

    /// Releases places at once: nobody tells Envoy's limiter when a request is over, so places cannot be held for it.
    async fn release(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket.filter(Ticket::has_permits) {
            // No rule counts responses of this status, which is none.
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

/// What the descriptors of one request have reserved. If this is dropped before all of it is settled, because the client left or
/// a descriptor could not be decided, the rest is given back.
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
