//! The state that a script saw, in a form that core can decide on, and the reader of a reply's integers.
//!
//! Must not know: batches, how replies are decoded, what the numbers of an algorithm mean.

use tollgate_core::limit::State;

use super::bytes::join_pair;

/// Reads the integers of a reply in order; `None` for an invalid value.
#[derive(Debug)]
pub(super) struct ReplyReader<'a>(pub(super) std::slice::Iter<'a, i64>);

impl ReplyReader<'_> {
    pub(super) fn int(&mut self) -> Option<i64> {
        self.0.next().copied()
    }

    pub(super) fn count(&mut self) -> Option<u64> {
        u64::try_from(self.int()?).ok()
    }

    pub(super) fn pair(&mut self) -> Option<u64> {
        let (high, low) = (self.int()?, self.int()?);
        join_pair(high, low)
    }

    /// A pair that is an instant, in whole microseconds.
    pub(super) fn micros(&mut self) -> Option<u64> {
        Some(self.pair()? / 1_000)
    }
}

/// The state before a decision, and the state after it where core cannot derive it.
#[derive(Debug)]
pub(super) struct ObservedState {
    /// The state that core decides on.
    pub(super) before: State,
    /// The state to report if nothing was stored, if it differs from `before`.
    pub(super) unchanged: Option<State>,
    /// The state to report if the edit was stored, if core cannot derive it from `before`.
    pub(super) changed: Option<State>,
    /// Whether the operation's lease is held.
    pub(super) is_held: bool,
}

impl ObservedState {
    /// A state that the reply contains completely.
    pub(super) const fn whole(before: State) -> Self {
        Self {
            before,
            unchanged: None,
            changed: None,
            is_held: false,
        }
    }
}
