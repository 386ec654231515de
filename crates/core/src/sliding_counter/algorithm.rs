//! The [`Algorithm`] implementation of the sliding window counter.
//!
//! Must not know: callers, other algorithms.

use super::{CounterState, SlidingCounter};
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

impl Algorithm for SlidingCounter {
    const STATE: StateSize = StateSize::Pair;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::SlidingCounter
    }

    decide_charge!(SlidingCounter, counter, Edit::Counter);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.counter(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(RefillPeriod::Span(self.window()))
    }

    /// The previous window counts too.
    fn lifetime(&self) -> Nanos {
        self.window().saturating_add(self.window())
    }

    /// The state holds the start of its window, so it counts for two windows after that.
    fn usage_scale(&self) -> UsageScale {
        UsageScale::from_units(self.limit(), self.lifetime())
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        TokenBucket::stricter_than_window(self.limit(), self.window())
    }

    fn state_from_pair(&self, words: [u64; 2]) -> State {
        State::Counter(CounterState::from_words(words))
    }

    fn has_to_carry_over(&self, old: &Self) -> bool {
        self.window() != old.window()
    }

    fn carry_over(&self, old: &Self, state: &State, now: Timestamp) -> Option<Edit> {
        match state {
            State::Counter(counter) => Some(Edit::Counter(self.convert_state(old, *counter, now))),
            _ => None,
        }
    }
}

impl CounterState {
    /// The state in two words: the start of the window, and both counts.
    #[inline]
    pub(crate) fn to_words(self) -> [u64; 2] {
        let counts = (u64::from(self.previous) << 32) | u64::from(self.current);
        [self.start, counts]
    }

    #[inline]
    fn from_words([start, counts]: [u64; 2]) -> Self {
        let half = |word: u64| u32::try_from(word & 0xffff_ffff).unwrap_or(u32::MAX);
        Self {
            start,
            previous: half(counts >> 32),
            current: half(counts),
        }
    }
}
