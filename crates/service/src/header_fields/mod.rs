//! Renders the header fields of responses, in the dialects that the operator chose.
//!
//! Every transport that sends header fields gets them here, as names and values in a buffer. `header_cache.rs` keeps the
//! static part of each limit, `problem.rs` writes the body of a refusal. Must not know: sockets, header libraries, how
//! requests are decided.

mod credits;
mod header_cache;
mod partition_cache;
mod problem;
mod shared_bytes;
mod template_cache;
#[cfg(test)]
mod template_tests;

pub use header_cache::HeaderCache;
pub use problem::{role_name, write_problem};
pub use shared_bytes::copy_to_shared;
pub use template_cache::AdmittedFields;

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::Guard;
use arrayvec::ArrayVec;
use http::HeaderValue;
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::{EnforcementMode, LimitState, Verdict};
use tollgate_http::{
    Dialect, Dialects, HeaderFields, Jitter, LimitTemplate, RateLimitItem, RateLimitStatus,
};
use tollgate_policy::rules::MeterRole;
use tollgate_store::contract::MAX_CHECKS;

use self::header_cache::HeaderCaches;
use crate::overload::CreditOffer;
use crate::secret::Secret;

/// Renders the header fields of responses.
pub struct HeaderRenderer {
    dialects: Dialects,
    /// Whether any dialect sends times as well as delays.
    sends_time: bool,
    /// Whether any dialect sends partition digests.
    sends_partitions: bool,
    /// Adds a random delay of at most this much to `Retry-After`.
    jitter: Nanos,
    /// Keys the digests of partitions.
    secret: Secret,
    /// The number of denials with a random delay; it seeds the next one.
    denied: AtomicU64,
    caches: HeaderCaches,
}

/// What header fields are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderSubject {
    /// The decision on a request.
    Request,
    /// The status of a key. The fields never include `Retry-After`.
    Status,
}

impl HeaderRenderer {
    /// A renderer of the current draft, without random delays.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        let new = Self {
            dialects: Dialects::NONE,
            sends_time: false,
            sends_partitions: false,
            jitter: Nanos::ZERO,
            secret,
            denied: AtomicU64::new(0),
            caches: HeaderCaches::default(),
        };
        new.with_dialects(Dialects::default())
    }

    pub(crate) fn with_dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self.sends_time = dialects.iter().any(Dialect::sends_time);
        self.sends_partitions = dialects.iter().any(Dialect::sends_partitions);
        self
    }

    pub(crate) const fn with_jitter(mut self, jitter: Nanos) -> Self {
        self.jitter = jitter;
        self
    }

    /// The dialects of all responses.
    #[must_use]
    pub const fn dialects(&self) -> Dialects {
        self.dialects
    }

    /// Calls `work` with the rate limit status of a verdict, to write header fields or problem details.
    pub(crate) fn with_rate_limit_status<R>(
        &self,
        verdict: &Verdict,
        subject: HeaderSubject,
        credits: Option<CreditOffer>,
        now: impl FnOnce() -> Timestamp,
        work: impl FnOnce(&RateLimitStatus<'_>) -> R,
    ) -> R {
        let outcome = match subject {
            HeaderSubject::Request => verdict.outcome(),
            HeaderSubject::Status => Outcome::Allow,
        };
        let work = |items: &[RateLimitItem<'_>], binding: Option<usize>| {
            let status = self.rate_limit_status(outcome, items, now);
            work(&match binding {
                Some(binding) => status.with_binding(binding),
                None => status,
            })
        };
        let len = verdict.limits().len() + usize::from(credits.is_some());
        self.caches.with(verdict.generation(), |cache| match len {
            0..=2 => self.collect::<2, R>(verdict, cache, credits, work),
            3..=8 => self.collect::<8, R>(verdict, cache, credits, work),
            9..=32 => self.collect::<32, R>(verdict, cache, credits, work),
            _ => self.collect::<MAX_CHECKS, R>(verdict, cache, credits, work),
        })
    }

    /// The fields of an admission in the default dialect, if this thread has sent such fields for the same keys lately. `None`
    /// for everything else: write the rate limit status then.
    pub(crate) fn admitted_fields(&self, verdict: &Verdict) -> Option<AdmittedFields> {
        if self.dialects != Dialects::default() || verdict.outcome() != Outcome::Allow {
            return None;
        }
        template_cache::render(self.caches.id(), verdict, || {
            self.caches.with(verdict.generation(), |cache| {
                let items = self.rate_limit_items(verdict, cache);
                let items: ArrayVec<_, { template_cache::MAX_LIMITS }> = items.collect();
                // An auxiliary meter is not sent.
                (items.len() == verdict.limits().len()).then_some(())?;
                let mut fields = HeaderFields::new();
                RateLimitStatus::new(Outcome::Allow, &items).write(self.dialects, &mut fields);
                let policy = fields.get("ratelimit-policy")?;
                Some((
                    HeaderValue::from_bytes(policy).ok()?,
                    LimitTemplate::new(&items)?,
                ))
            })
        })
    }

    /// The rate limit status of any limits.
    pub fn rate_limit_status<'a>(
        &self,
        outcome: Outcome,
        items: &'a [RateLimitItem<'a>],
        now: impl FnOnce() -> Timestamp,
    ) -> RateLimitStatus<'a> {
        let jitter = match outcome {
            Outcome::Deny { .. } if !self.jitter.is_zero() => {
                let count = self.denied.fetch_add(1, Ordering::Relaxed);
                Jitter::new(self.jitter, self.first_seed().wrapping_add(count))
            }
            _ => Jitter::NONE,
        };
        let now = if self.sends_time {
            now()
        } else {
            Timestamp::EPOCH
        };
        RateLimitStatus::new(outcome, items)
            .with_now(now)
            .with_jitter(jitter)
    }

    /// Calls `work` with the status of a request that is shed: its client's credits, and when it may return.
    pub fn with_shed_status<R>(
        &self,
        credits: &CreditOffer,
        retry_after: Nanos,
        now: impl FnOnce() -> Timestamp,
        work: impl FnOnce(&RateLimitStatus<'_>) -> R,
    ) -> R {
        let outcome = Outcome::Deny { retry_after };
        let item = credits::item(credits, outcome);
        work(&self.rate_limit_status(outcome, item.as_slice(), now))
    }

    /// The rendered policies of the verdict's generation. [`rate_limit_items`](Self::rate_limit_items) borrows them.
    pub fn cache(&self, verdict: &Verdict) -> Guard<Arc<HeaderCache>> {
        self.caches.for_generation(verdict.generation())
    }

    /// The status of each limit of a verdict that is sent to clients.
    pub fn rate_limit_items<'a>(
        &self,
        verdict: &'a Verdict,
        cache: &'a HeaderCache,
    ) -> impl Iterator<Item = RateLimitItem<'a>> {
        let states = verdict.limits().iter();
        states.filter_map(move |state| self.rate_limit_item(verdict, state, cache))
    }

    /// Calls `work` with the status of up to `N` limits that are sent to clients, and the index of the binding one.
    fn collect<const N: usize, R>(
        &self,
        verdict: &Verdict,
        cache: &HeaderCache,
        credits: Option<CreditOffer>,
        work: impl FnOnce(&[RateLimitItem<'_>], Option<usize>) -> R,
    ) -> R {
        let binding = verdict.binding();
        let is_binding = |state: &LimitState| binding.is_some_and(|one| std::ptr::eq(one, state));
        let states = verdict.limits().iter();
        let sent =
            states.filter_map(|state| Some((state, self.rate_limit_item(verdict, state, cache)?)));
        let (mut items, mut bound) = (ArrayVec::<_, N>::new(), None);
        for (state, item) in sent.take(N) {
            if is_binding(state) {
                bound = Some(items.len());
            }
            items.push(item);
        }
        // Last, and binding only without limits: formats that have room for one show the limit.
        if let Some(item) = credits.and_then(|credits| credits::item(&credits, Outcome::Allow)) {
            bound = bound.or((!items.is_empty()).then_some(0));
            let _is_listed = items.try_push(item).is_ok();
        }
        work(&items, bound)
    }

    /// The status of a limit. `None` if it is not sent to clients.
    fn rate_limit_item<'a>(
        &self,
        verdict: &'a Verdict,
        state: &LimitState,
        cache: &'a HeaderCache,
    ) -> Option<RateLimitItem<'a>> {
        if !is_sent_to_clients(state) {
            return None;
        }
        let policy = cache.policy(verdict, state)?;
        let mut item =
            RateLimitItem::new(policy, state.outcome, &state.status).with_cost(state.cost);
        item.quota = state.status.limit;
        if state.quota_index().is_none() {
            // Entries of computed quotas are shared, so the window may be another one.
            item.window = verdict.quota_info(state).window();
        }
        if state.status.remaining == 0 {
            item.next_unit_after = verdict.quota_info(state).time_to_next_unit(&state.status);
        }
        let key = verdict.key(state);
        if !key.is_empty() && self.sends_partitions {
            item.partition = Some(partition_cache::digest(&self.secret.0, key));
        }
        Some(item)
    }

    /// The first seed of random delays. It differs between processes, so that the nodes of a fleet do not add the same delays.
    fn first_seed(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.secret.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }
}

impl fmt::Debug for HeaderRenderer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeaderRenderer")
            .field("dialects", &self.dialects)
            .field("jitter", &self.jitter)
            .finish_non_exhaustive()
    }
}

/// Calls `work` with this thread's buffer for header fields. A nested call gets a buffer of its own.
pub fn with_header_fields<R>(work: impl FnOnce(&mut HeaderFields) -> R) -> R {
    thread_local! {
        static OWN: Cell<Option<HeaderFields>> = const { Cell::new(None) };
    }
    let mut fields = OWN
        .take()
        .unwrap_or_else(|| HeaderFields::with_capacity(1_024));
    let done = work(&mut fields);
    OWN.set(Some(fields));
    done
}

/// Whether a limit is sent to clients: every enforced limit, by the quota that was charged; an auxiliary meter only if it denies.
fn is_sent_to_clients(state: &LimitState) -> bool {
    state.enforcement == EnforcementMode::Enforced
        && (matches!(
            state.role(),
            MeterRole::Main | MeterRole::Share | MeterRole::Spillover
        ) || !state.outcome.is_admitted())
}
