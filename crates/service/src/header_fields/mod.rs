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
use tollgate_engine::{LimitState, Standing as Mode};
use tollgate_http::{Answer, Dialect, Dialects, Jitter, Policy, Standing, Words as HeaderFields};
use tollgate_policy::rules::Role;
use tollgate_store::contract::MAX_CHECKS;

use self::header_cache::HeaderCaches;
use crate::decision::{Checked, LimitDetail, LimitDetails};
use crate::secret::Secret;

/// Renders the header fields of answers.
pub struct HeaderRenderer {
    dialects: Dialects,
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
pub enum Subject {
    /// A request that goes on or not.
    Request,
    /// Where a key stands. The answer never says `Retry-After`.
    Status,
}

impl HeaderRenderer {
    /// A renderer of the current draft, without random delays.
    #[must_use]
    pub fn new(secret: Secret) -> Self {
        Self {
            dialects: Dialects::default(),
            jitter: Nanos::ZERO,
            secret,
            denied: AtomicU64::new(0),
            caches: HeaderCaches::default(),
        }
    }

    pub(crate) const fn with_dialects(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
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

    /// Takes down the details of one decision that these dialects send.
    pub(crate) fn details(&self) -> LimitDetails {
        let names = [Dialect::Draft11, Dialect::Next];
        let sends_partitions = names.iter().any(|one| self.dialects.contains(*one));
        LimitDetails::new(sends_partitions.then_some(self.secret))
    }

    /// Lends what a decision promises to `work`, which writes its fields and its body.
    pub(crate) fn answer<R>(
        &self,
        checked: &Checked,
        subject: Subject,
        now: impl FnOnce() -> Timestamp,
        work: impl FnOnce(&Answer<'_>) -> R,
    ) -> R {
        let verdict = &checked.verdict;
        let outcome = match subject {
            Subject::Request => verdict.outcome(),
            Subject::Status => Outcome::Allow,
        };
        let work = |standings: &[Standing<'_>], binding: Option<usize>| {
            let answer = self.answer_of(outcome, standings, now);
            work(&match binding {
                Some(binding) => answer.bound_by(binding),
                None => answer,
            })
        };
        let cache = self.cache(checked);
        match verdict.limits().len() {
            0..=2 => collect::<2, R>(checked, &cache, work),
            3..=8 => collect::<8, R>(checked, &cache, work),
            _ => collect::<MAX_CHECKS, R>(checked, &cache, work),
        }
    }

    /// An answer about any limits.
    pub fn answer_of<'a>(
        &self,
        outcome: Outcome,
        standings: &'a [Standing<'a>],
        now: impl FnOnce() -> Timestamp,
    ) -> Answer<'a> {
        let jitter = match outcome {
            Outcome::Deny { .. } if !self.jitter.is_zero() => {
                let count = self.denied.fetch_add(1, Ordering::Relaxed);
                Jitter::new(self.jitter, self.first_seed().wrapping_add(count))
            }
            _ => Jitter::NONE,
        };
        let now = if self.sends_the_time() {
            now()
        } else {
            Timestamp::EPOCH
        };
        Answer::new(outcome, standings).at(now).spread_by(jitter)
    }

    /// The rendered policies of the generation that decided. [`standings`] borrows them.
    pub fn cache(&self, checked: &Checked) -> Guard<Arc<HeaderCache>> {
        self.caches.of(checked.verdict.generation())
    }

    /// Where the seeds of random delays begin: elsewhere in every process, so that the nodes of a fleet do not add the same.
    fn first_seed(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.secret.0;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    fn sends_the_time(&self) -> bool {
        let clocks = [
            Dialect::XRateLimitEpoch,
            Dialect::XRateLimitEpochMillis,
            Dialect::Discord,
            Dialect::GitHub,
        ];
        clocks.iter().any(|one| self.dialects.contains(*one))
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

/// Where up to `N` limits stand that clients are told about, and which of them binds.
fn collect<const N: usize, R>(
    checked: &Checked,
    cache: &HeaderCache,
    work: impl FnOnce(&[Standing<'_>], Option<usize>) -> R,
) -> R {
    let verdict = &checked.verdict;
    let binding = verdict.binding();
    let is_binding = |position: usize| {
        let state = verdict.limits().get(position);
        state
            .zip(binding)
            .is_some_and(|(one, other)| std::ptr::eq(one, other))
    };
    let mut told = positioned(checked, cache);
    let Some((position, first)) = told.next() else {
        return work(&[], None);
    };
    let mut standings = [first; N];
    let (mut len, mut bound) = (1, is_binding(position).then_some(0));
    for (place, (position, standing)) in standings.iter_mut().skip(1).zip(told) {
        if is_binding(position) {
            bound = Some(len);
        }
        *place = standing;
        len += 1;
    }
    work(standings.get(..len).unwrap_or_default(), bound)
}

/// Where the limits of a decision stand that clients are told about.
pub fn standings<'a>(
    checked: &'a Checked,
    cache: &'a HeaderCache,
) -> impl Iterator<Item = Standing<'a>> {
    positioned(checked, cache).map(|(_, standing)| standing)
}

/// The same, each with its position in the verdict.
fn positioned<'a>(
    checked: &'a Checked,
    cache: &'a HeaderCache,
) -> impl Iterator<Item = (usize, Standing<'a>)> {
    let Checked { verdict, details } = checked;
    let states = verdict.limits().iter().enumerate();
    states.filter_map(move |(position, state)| {
        let state = Some(state).filter(|state| is_told(state))?;
        let detail = details.of(position);
        let policy = cache.policy(verdict, state, detail.window)?;
        Some((position, standing(policy, state, &detail)))
    })
}

/// Whether clients are told about a state: every enforced limit, and of what stands beside a limit only what refuses.
fn is_told(state: &LimitState) -> bool {
    state.standing == Mode::Enforced && (state.role() == Role::Main || !state.outcome.is_admitted())
}

fn standing<'a>(policy: &'a Policy, state: &LimitState, detail: &LimitDetail) -> Standing<'a> {
    let standing = Standing::new(policy, state.outcome, &state.status)
        .with_quota(state.status.limit, detail.window)
        .with_more_after(detail.time_to_next_unit)
        .with_cost(detail.cost);
    match detail.partition {
        Some(partition) => standing.with_partition(partition),
        None => standing,
    }
}
