//! A verdict in words: which of them an answer has, in the dialects that the operator chose.
//!
//! Every transport that sends fields gets them through here, as names and values in a buffer. What stays the same about a
//! limit is in `book.rs`, written once; what was seen of it this time in `notes.rs`; the problem of a refusal in
//! `refusal.rs`. Must not know: sockets, header libraries, how anything was decided.

mod book;
mod notes;
mod refusal;

pub(crate) use notes::{Note, Notes};
pub(crate) use refusal::{part_word, write_problem};

use std::cell::Cell;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::{Nanos, Outcome, Timestamp};
use tollgate_engine::{LimitState, Standing as Mode, Verdict};
use tollgate_http::{Answer, Dialect, Dialects, Jitter, Policy, Standing, Words};
use tollgate_policy::rules::Role;

use self::book::Book;

/// The most limits that a verdict lists.
const MOST_STATES: usize = tollgate_store::contract::MAX_CHECKS;

/// How answers are worded.
#[derive(Debug)]
pub(crate) struct Wording {
    dialects: Dialects,
    /// Up to so much longer than needed those who are denied are told to wait.
    jitter: Nanos,
    /// Keys the digests of who is counted.
    secret: [u8; 16],
    /// How many were denied and told to wait a little longer; each of them another time.
    denied: AtomicU64,
}

/// What an answer is about, beside the verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    /// A request that goes on or not.
    Request,
    /// Where somebody stands. Nobody is told to come back.
    Stand,
}

impl Wording {
    /// The current draft, without jitter.
    pub(crate) fn keyed_by(secret: [u8; 16]) -> Self {
        Self {
            dialects: Dialects::default(),
            jitter: Nanos::ZERO,
            secret,
            denied: AtomicU64::new(0),
        }
    }

    pub(crate) const fn speaking(mut self, dialects: Dialects) -> Self {
        self.dialects = dialects;
        self
    }

    pub(crate) const fn spreading(mut self, jitter: Nanos) -> Self {
        self.jitter = jitter;
        self
    }

    pub(crate) const fn dialects(&self) -> Dialects {
        self.dialects
    }

    /// A witness for one decision, who remembers what these dialects say of it.
    pub(crate) fn notes(&self) -> Notes {
        let names = [Dialect::Draft11, Dialect::Next];
        let says_it = names.iter().any(|one| self.dialects.contains(*one));
        Notes::keyed_by(says_it.then_some(self.secret))
    }

    /// Hands over what is promised by a verdict, for its fields and for its body.
    pub(crate) fn answer<R>(
        &self,
        verdict: &Verdict,
        notes: &Notes,
        about: About,
        now: impl FnOnce() -> Timestamp,
        work: impl FnOnce(&Answer<'_>) -> R,
    ) -> R {
        let outcome = match about {
            About::Request => verdict.outcome(),
            About::Stand => Outcome::Allow,
        };
        let work = |standings: &[Standing<'_>], binding: Option<usize>| {
            let answer = self.about(outcome, standings, now);
            work(&match binding {
                Some(binding) => answer.bound_by(binding),
                None => answer,
            })
        };
        match verdict.limits().len() {
            0..=2 => stand::<2, R>(verdict, notes, work),
            3..=8 => stand::<8, R>(verdict, notes, work),
            _ => stand::<MOST_STATES, R>(verdict, notes, work),
        }
    }

    /// An answer about limits, wherever they stand.
    pub(crate) fn about<'a>(
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
        let now = if self.tells_the_time() {
            now()
        } else {
            Timestamp::EPOCH
        };
        Answer::new(outcome, standings).at(now).spread_by(jitter)
    }

    /// Where the seeds of waits begin: elsewhere in every process, so that a fleet does not spread all alike.
    fn first_seed(&self) -> u64 {
        let [a, b, c, d, e, f, g, h, ..] = self.secret;
        u64::from_be_bytes([a, b, c, d, e, f, g, h])
    }

    fn tells_the_time(&self) -> bool {
        let clocks = [
            Dialect::XRateLimitEpoch,
            Dialect::XRateLimitEpochMillis,
            Dialect::Discord,
            Dialect::GitHub,
        ];
        clocks.iter().any(|one| self.dialects.contains(*one))
    }
}

/// Runs `work` with a buffer for fields that this thread keeps. Work inside of other work gets its own.
pub(crate) fn with_words<R>(work: impl FnOnce(&mut Words) -> R) -> R {
    thread_local! {
        static OWN: Cell<Option<Words>> = const { Cell::new(None) };
    }
    let mut words = OWN.take().unwrap_or_else(|| Words::with_capacity(1_024));
    let done = work(&mut words);
    OWN.set(Some(words));
    done
}

/// Where up to `N` limits stand that clients are told about, and which of them binds.
fn stand<const N: usize, R>(
    verdict: &Verdict,
    notes: &Notes,
    work: impl FnOnce(&[Standing<'_>], Option<usize>) -> R,
) -> R {
    let mut told = told(verdict, notes);
    let binding = verdict.binding();
    let is_binding = |position: usize| {
        let state = verdict.limits().get(position);
        state
            .zip(binding)
            .is_some_and(|(one, other)| std::ptr::eq(one, other))
    };
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

/// Where the limits of a verdict stand that clients are told about, each with its position in the verdict.
pub(crate) fn told<'a>(
    verdict: &'a Verdict,
    notes: &'a Notes,
) -> impl Iterator<Item = (usize, Standing<'a>)> {
    let book = Book::of(verdict.generation());
    let states = verdict.limits().iter().enumerate();
    states.filter_map(move |(position, state)| {
        let policy = Some(state).filter(|state| is_told(state));
        let note = notes.of(position);
        let policy = policy.and_then(|state| book?.policy(verdict, state, note.window))?;
        Some((position, standing(policy, state, &note)))
    })
}

/// Whether clients are told about a state: what is enforced, and of what stands beside a limit only what refuses.
fn is_told(state: &LimitState) -> bool {
    state.standing == Mode::Enforced && (state.role() == Role::Main || !state.outcome.is_admitted())
}

fn standing<'a>(policy: &'a Policy, state: &LimitState, note: &Note) -> Standing<'a> {
    let standing = Standing::new(policy, state.outcome, &state.status)
        .with_quota(state.status.limit, note.window)
        .with_more_after(note.more_after)
        .with_cost(note.cost);
    match note.partition {
        Some(partition) => standing.with_partition(partition),
        None => standing,
    }
}
