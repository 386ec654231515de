//! The [`Algorithm`] implementation of the fixed window.
//!
//! Must not know: callers, other algorithms.

use super::{FixedWindow, Window};
use crate::limit::algorithm::{Algorithm, decide_charge};
use crate::limit::{AlgorithmKind, Edit, Op, OpError, RefillPeriod, State, StateSize, UsageScale};
use crate::outcome::{QuotaStatus, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The longest month, for calendar windows, whose length varies.
const LONGEST_MONTH: Nanos = Nanos::from_secs(31 * 86_400);

impl Algorithm for FixedWindow {
    const STATE: StateSize = StateSize::Pair;

    fn kind(&self) -> AlgorithmKind {
        AlgorithmKind::FixedWindow
    }

    decide_charge!(FixedWindow, window, Edit::Window);

    fn status_of(&self, state: &State, now: Timestamp) -> QuotaStatus {
        self.status(state.window(), now)
    }

    fn capacity(&self) -> u64 {
        self.limit()
    }

    fn refill_period(&self) -> Option<RefillPeriod> {
        Some(match self.window() {
            Window::Epoch(length) | Window::FirstHit(length) => RefillPeriod::Span(length),
            Window::Calendar(..) => RefillPeriod::Calendar,
        })
    }

    fn lifetime(&self) -> Nanos {
        match self.window() {
            Window::Epoch(length) | Window::FirstHit(length) => length,
            Window::Calendar(..) => Nanos::YEAR.saturating_add(Nanos::YEAR),
        }
    }

    fn usage_scale(&self) -> UsageScale {
        UsageScale::from_units(self.limit(), Nanos::ZERO)
    }

    fn stricter_bucket(&self) -> Option<TokenBucket> {
        let length = match self.window() {
            Window::Epoch(length) | Window::FirstHit(length) => length,
            Window::Calendar(..) => LONGEST_MONTH,
        };
        TokenBucket::stricter_than_window(self.limit(), length)
    }
}
