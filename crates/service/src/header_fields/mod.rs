//! The header fields of an answer, in the dialects that the operator chose.
//!
//! Every transport that sends fields gets them here, as names and values in a buffer. `header_cache.rs` keeps what stays the
//! same about a limit, `problem.rs` writes the body of a refusal. Must not know: sockets, header libraries, how anything
//! was decided.

mod header_cache;
mod problem;

pub use header_cache::HeaderCache;
pub use problem::{role_name, write_problem};

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::Guard;
use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::{EnforcementMode, LimitState, Verdict};
use tollgate_http::{
    Dialect, Dialects, HeaderFields, Jitter, PartitionKey, RateLimitItem, RateLimitStatus,
};
use tollgate_policy::rules::MeterRole;
use tollgate_store::contract::MAX_CHECKS;

use self::header_cache::HeaderCaches;
use crate::secret::Secret;

/// Renders the header fields of answers.
pub struct HeaderRenderer {
    dialects: Dialects,
    /// Whether any of them says when, and not only after how long.
    sends_time: bool,
    /// Whether any of them says whose quota it is.
    sends_partitions: bool,
    /// Adds a random delay of at most this much to `Retry-After`.
    jitter: Nanos,
    /// Keys the digests of partitions.
    secret: Secret,
    /// Counts denials that got a random delay, so that each gets another one.
    denied: AtomicU64,
    caches: HeaderCaches,
}

/// What an answer is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderSubject {
    /// A request that goes on or not.
    Request,
    /// Where a key stands. The answer never says `Retry-After`.
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

    /// The dialects of all answers.
    #[must_use]
    pub const fn dialects(&self) -> Dialects {
        self.dialects
    }

    /// Lends what a decision promises to `work`, which writes its fields and its body.
    pub(crate) fn with_rate_limit_status<R>(
        &self,
        verdict: &Verdict,
        subject: HeaderSubject,
        now: impl FnOnce() -> Timestamp,
        work: impl FnOnce(&RateLimitStatus<'_>) -> R,
    ) -> R {
        let outcome = match subject {
            HeaderSubject::Request => verdict.outcome(),
            HeaderSubject::Status => Outcome::Allow,
        };
        let work = |standings: &[RateLimitItem<'_>], binding: Option<usize>| {
            let answer = self.rate_limit_status(outcome, standings, now);
            work(&match binding {
                Some(binding) => answer.with_binding(binding),
                None => answer,
            })
        };
        let cache = self.cache(verdict);
        match verdict.limits().len() {
            0..=2 => self.collect::<2, R>(verdict, &cache, work),
            3..=8 => self.collect::<8, R>(verdict, &cache, work),
            _ => self.collect::<MAX_CHECKS, R>(verdict, &cache, work),
        }
    }

    /// An answer about any limits.
    pub fn rate_limit_status<'a>(
        &self,
        outcome: Outcome,
        standings: &'a [RateLimitItem<'a>],
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
        RateLimitStatus::new(outcome, standings)
            .with_now(now)
            .with_jitter(jitter)
    }

    /// The rendered policies of the generation that decided. [`standings`](Self::standings) borrows them.
    pub fn cache(&self, verdict: &Verdict) -> Guard<Arc<HeaderCache>> {
        self.caches.for_generation(verdict.generation())
    }

    /// Where the limits of a verdict stand that clients are told about.
    pub fn rate_limit_items<'a>(
        &self,
        verdict: &'a Verdict,
        cache: &'a HeaderCache,
    ) -> impl Iterator<Item = RateLimitItem<'a>> {
        let states = verdict.limits().iter();
        states.filter_map(move |state| self.rate_limit_item(verdict, state, cache))
    }

    /// Where up to `N` limits stand that clients are told about, and which of them binds.
    fn collect<const N: usize, R>(
        &self,
        verdict: &Verdict,
        cache: &HeaderCache,
        work: impl FnOnce(&[RateLimitItem<'_>], Option<usize>) -> R,
    ) -> R {
        let binding = verdict.binding();
        let is_binding = |state: &LimitState| binding.is_some_and(|one| std::ptr::eq(one, state));
        let states = verdict.limits().iter();
        let mut told =
            states.filter_map(|state| Some((state, self.rate_limit_item(verdict, state, cache)?)));
        let Some((state, first)) = told.next() else {
            return work(&[], None);
        };
        let mut standings = [first; N];
        let (mut len, mut bound) = (1, is_binding(state).then_some(0));
        for (place, (state, standing)) in standings.iter_mut().skip(1).zip(told) {
            if is_binding(state) {
                bound = Some(len);
            }
            *place = standing;
            len += 1;
        }
        work(standings.get(..len).unwrap_or_default(), bound)
    }

    /// Where a limit stands. `None` if clients are not told about it.
    fn rate_limit_item<'a>(
        &self,
        verdict: &'a Verdict,
        state: &LimitState,
        cache: &'a HeaderCache,
    ) -> Option<RateLimitItem<'a>> {
        if !is_sent_to_clients(state) {
            return None;
        }
        let quota = verdict.quota_info(state);
        let window = quota.window();
        let policy = cache.policy(verdict, state, &quota)?;
        let standing = RateLimitItem::new(policy, state.outcome, &state.status)
            .with_quota(state.status.limit, window)
            .with_next_unit_after(quota.time_to_next_unit(&state.status))
            .with_cost(state.cost);
        let key = verdict.key(state);
        if key.is_empty() || !self.sends_partitions {
            return Some(standing);
        }
        let partition = PartitionKey::digest(&self.secret.0, key);
        Some(standing.with_partition(partition))
    }

    /// Where the seeds of random delays begin: elsewhere in every process, so that the nodes of a fleet do not add the same.
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

/// Runs `work` with a buffer for fields that this thread keeps. A nested call gets a buffer of its own.
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

/// Whether clients are told about a state: every enforced limit, and of what stands beside a limit only what refuses.
fn is_sent_to_clients(state: &LimitState) -> bool {
    state.enforcement == EnforcementMode::Enforced
        && (state.role() == MeterRole::Main || !state.outcome.is_admitted())
}
