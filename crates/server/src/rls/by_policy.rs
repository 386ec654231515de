//! Decided by a policy of ours: every descriptor is a request of its own to the engine, and all of them are charged or none.
//!
//! Must not know: protobuf, how the engine decides.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::envoy::Decided;
use tollgate_engine::{Reason, Ticket};
use tollgate_http::Words;
use tollgate_policy::envoy::{
    BadRequest, Code, Descriptor, Entry, EnvoyPolicy, MAX_DESCRIPTORS, MAX_ENTRIES, Request,
};
use tollgate_store::{Clock, ErrorKind, StoreError};

use super::Refused;
use super::asked::{Answered, Asked};
use super::by_files::status_of;
use super::said::{Said, Status};
use super::standing::outcome_of;
use crate::app::App;
use tollgate_service::{Transport, standings, with_header_fields};

/// The domain in which limits that come with descriptors are counted.
const OVERRIDES: &str = "overrides";

/// A policy of that domain and no rules.
pub(super) fn overrides() -> EnvoyPolicy {
    EnvoyPolicy::without_rules(OVERRIDES)
}

impl<C: Clock> App<C> {
    pub(super) async fn decide_by_policy<T>(
        &self,
        transport: Transport,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        check(request).map_err(Refused::BadRequest)?;
        if let [only] = request.descriptors
            && only.limit.is_none()
        {
            let asked = Asked::new(request, only);
            // Nobody is held back, so there is nothing to look at first: the whole of it in one step.
            if !self.service.has_fleet() && !self.saturation().is_full() {
                return Ok(self.decide_here(transport, asked, see));
            }
            return Box::pin(self.decide_patiently(transport, asked, see)).await;
        }
        Box::pin(self.decide_together(transport, request, see)).await
    }

    /// One descriptor, where nobody has to be waited for. Not inlined: what is decided is large, and inside of a future it
    /// would be copied once more.
    #[inline(never)]
    fn decide_here<T>(
        &self,
        transport: Transport,
        asked: Asked<'_>,
        see: impl FnOnce(&Said<'_>) -> T,
    ) -> T {
        let all = [self.charge_here(asked)];
        self.note(transport, &all);
        self.tell(&all, &[None], see)
    }

    fn charge_here<'a>(&self, asked: Asked<'a>) -> Answered<'a> {
        let mut decided = self.service.check_local(&asked, asked.terms());
        if let Some(ticket) = decided.verdict.take_ticket().filter(Ticket::holds_places) {
            let _released = self.engine().respond(ticket, &0_u16);
        }
        Answered {
            asked,
            decided,
            crowded: None,
        }
    }

    async fn decide_patiently<T>(
        &self,
        transport: Transport,
        asked: Asked<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        let all = [self.decide_one(asked).await];
        is_answered(&all)?;
        self.note(transport, &all);
        Ok(self.tell(&all, &[None], see))
    }

    /// One descriptor. While as many wait as may, it is looked at first: who cannot wait is not charged.
    async fn decide_one<'a>(&self, asked: Asked<'a>) -> Answered<'a> {
        if self.saturation().is_full() {
            let seen = Answered::looked_at(asked, self).await;
            if seen.crowded.is_some() {
                return seen;
            }
            return self.charge_one(seen.asked).await;
        }
        self.charge_one(asked).await
    }

    async fn charge_one<'a>(&self, asked: Asked<'a>) -> Answered<'a> {
        let mut decided = asked.decide(self).await;
        self.settle(decided.verdict.take_ticket()).await;
        Answered {
            asked,
            decided,
            crowded: None,
        }
    }

    /// Several descriptors: if one is refused, what the others were charged is given back.
    async fn decide_together<T>(
        &self,
        transport: Transport,
        request: &Request<'_>,
        see: impl FnOnce(&Said<'_>) -> T + Send,
    ) -> Result<T, Refused> {
        // First everybody is only asked, so that a request that is refused does not take from others for a moment what it
        // will not get.
        let mut all: Vec<Answered<'_>> = Vec::with_capacity(request.descriptors.len());
        for descriptor in request.descriptors {
            let asked = Asked::new(request, descriptor);
            all.push(Answered::looked_at(asked, self).await);
        }
        let mut order: Vec<usize> = (0..all.len()).collect();
        // Whoever refuses is charged first: it refuses again, and its penalties and counters see it.
        order.sort_by_key(|index| all.get(*index).is_some_and(Answered::is_admitted));
        let mut tickets: Vec<Ticket> = Vec::new();
        let mut is_refused = false;
        for index in order {
            let Some(one) = all.get_mut(index).filter(|one| one.is_charged()) else {
                continue;
            };
            let mut decided = one.asked.reserve(self).await;
            tickets.extend(decided.verdict.take_ticket());
            is_refused = !decided.verdict.is_admitted();
            one.decided = decided;
            if is_refused {
                break;
            }
        }
        is_refused |= all.iter().any(|one| !one.is_admitted());
        let mut overrides = [const { None }; MAX_DESCRIPTORS];
        if !is_refused {
            for (place, one) in overrides.iter_mut().zip(&all) {
                *place = self.decide_override(request, one.asked.descriptor).await?;
                is_refused |=
                    place.is_some_and(|status: Status<'_>| status.code == Code::OverLimit);
            }
        }
        for ticket in tickets {
            if is_refused {
                // What a store that answers no more keeps, it keeps.
                let _given_back = self.engine().together().cancel(ticket).await;
            } else {
                self.settle(Some(ticket)).await;
            }
        }
        let overrides = overrides.get(..all.len()).unwrap_or_default();
        is_answered(&all)?;
        self.note(transport, &all);
        if is_refused {
            for one in all.iter_mut().filter(|one| one.is_admitted()) {
                one.decided = one.asked.look(self).await;
            }
        } else {
            for one in all.iter_mut().filter(|one| one.asked.is_refund()) {
                one.decided = one.asked.decide(self).await;
            }
        }
        Ok(self.tell(&all, overrides, see))
    }

    /// A limit that comes with a descriptor, counted as envoyproxy/ratelimit counts it: in a window of its own.
    async fn decide_override(
        &self,
        request: &Request<'_>,
        descriptor: &Descriptor<'_>,
    ) -> Result<Option<Status<'static>>, Refused> {
        if descriptor.limit.is_none() {
            return Ok(None);
        }
        let own = descriptor.entries;
        let full = match own.first() {
            Some(first) if own.len() >= MAX_ENTRIES => Some((joined(request.domain, first), first)),
            _ => None,
        };
        let (front, own) = match &full {
            // There is no room for the domain beside so many, so it goes into the first one's key.
            Some((key, first)) => (
                Entry::new(key, first.value),
                own.get(1..).unwrap_or_default(),
            ),
            None => (Entry::new("domain", request.domain), own),
        };
        let mut entries = [front; MAX_ENTRIES];
        for (place, entry) in entries.iter_mut().skip(1).zip(own) {
            *place = *entry;
        }
        let len = own.len().saturating_add(1);
        if len > MAX_ENTRIES {
            let reason = BadRequest::TooManyEntries { count: len };
            return Err(Refused::BadRequest(reason));
        }
        let descriptors = [Descriptor {
            entries: entries.get(..len).unwrap_or_default(),
            ..*descriptor
        }];
        let asked = Request {
            domain: OVERRIDES,
            descriptors: &descriptors,
            hits_addend: request.hits_addend,
        };
        let see = |decided: &Decided<'_>| {
            let status = decided.reply.statuses().first().copied();
            let mut status = status_of(&status.unwrap_or_default());
            // Limits that come with descriptors have no names.
            let limit = status.limit.take();
            Status {
                limit: limit.map(|limit| super::said::Limit { name: "", ..limit }),
                code: status.code,
                remaining: status.remaining,
                until_reset: status.until_reset,
            }
        };
        let engine = &self.rls.engine;
        Ok(Some(if self.service.has_fleet() {
            engine.decide_together(&asked, see).await?
        } else {
            engine.decide(&asked, see)?
        }))
    }

    /// Counts and logs one verdict for the whole request: that of the first descriptor that is refused, or of the first.
    fn note(&self, transport: Transport, all: &[Answered<'_>]) {
        let speaks = all.iter().find(|one| !one.is_admitted()).or(all.first());
        if let Some(one) = speaks {
            let is_look = !one.is_charged();
            self.service
                .observe(transport, &one.asked, &one.decided.verdict, is_look);
        }
    }

    /// Puts the answer together. `overrides` stands for what was decided by limits that came with descriptors.
    fn tell<T>(
        &self,
        all: &[Answered<'_>],
        overrides: &[Option<Status<'_>>],
        see: impl FnOnce(&Said<'_>) -> T,
    ) -> T {
        let mut statuses = [Status::default(); MAX_DESCRIPTORS];
        let answers = all.iter().zip(overrides);
        for (place, (one, by_override)) in statuses.iter_mut().zip(answers) {
            *place = by_override.unwrap_or_else(|| one.status());
        }
        let statuses = statuses.get(..all.len()).unwrap_or_default();
        let outcome = outcome_of(statuses);
        let wait = all.iter().map(Answered::wait).max();
        with_header_fields(|words| {
            match all {
                [only] if only.decided.verdict.is_admitted() == outcome.is_admitted() => {
                    self.service.fields(&only.decided, words);
                }
                all => self.word_all(outcome, all, words),
            }
            see(&Said {
                overall: if outcome.is_admitted() {
                    Code::Ok
                } else {
                    Code::OverLimit
                },
                statuses,
                words,
                metadata: None,
                wait: wait
                    .filter(|_| outcome.is_admitted())
                    .unwrap_or(Nanos::ZERO),
            })
        })
    }

    /// The header fields of several descriptors. What two of them fall under is said once, as the tighter one has it.
    fn word_all(&self, outcome: Outcome, all: &[Answered<'_>], words: &mut Words) {
        let mut merged: Vec<tollgate_http::Standing<'_>> = Vec::new();
        let counted = || {
            all.iter()
                .filter(|one| one.asked.descriptor.limit.is_none())
        };
        let caches: Vec<_> = counted()
            .map(|one| self.service.headers().cache(&one.decided))
            .collect();
        let all = counted().zip(&caches);
        for new in all.flat_map(|(one, cache)| standings(&one.decided, cache)) {
            let is_same = |known: &&mut tollgate_http::Standing<'_>| known.policy == new.policy;
            match merged.iter_mut().find(is_same) {
                Some(known) if new.remaining < known.remaining => *known = new,
                Some(_) => {}
                None => merged.push(new),
            }
        }
        self.word(outcome, &merged, words);
    }

    /// Nobody tells Envoy's limiter when a request is over, so places cannot be held for it: they are given back at once.
    async fn settle(&self, ticket: Option<Ticket>) {
        if let Some(ticket) = ticket.filter(Ticket::holds_places) {
            // No rule counts responses of this status, which is none.
            let _released = self.engine().together().respond(ticket, &0_u16).await;
        }
    }
}

/// A domain and an entry's key as one, which no other two are. It begins with a digit, so it is no `domain` either.
fn joined(domain: &str, entry: &Entry<'_>) -> String {
    format!("{}:{domain}{}", domain.len(), entry.key)
}

/// Whether all of it was decided. It was not where a limit says that nobody goes on without the store: Envoy is told that
/// there is no answer, and knows what to do then.
fn is_answered(all: &[Answered<'_>]) -> Result<(), Refused> {
    let is_closed = |one: &Answered<'_>| {
        let verdict = &one.decided.verdict;
        verdict.degraded().store && verdict.reason() == Some(Reason::Capacity)
    };
    match all.iter().any(is_closed) {
        true => Err(Refused::Store(StoreError::new(
            ErrorKind::Unreachable,
            "a limit is closed while the shared store is away",
        ))),
        false => Ok(()),
    }
}

fn check(request: &Request<'_>) -> Result<(), BadRequest> {
    if request.domain.is_empty() {
        return Err(BadRequest::EmptyDomain);
    }
    match request.descriptors.len() {
        0 => Err(BadRequest::NoDescriptors),
        count if count > MAX_DESCRIPTORS => Err(BadRequest::TooManyDescriptors { count }),
        _ => Ok(()),
    }
}
