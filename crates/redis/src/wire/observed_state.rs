//! The state that a script saw, as core can decide on it, and the numbers of a reply that it is read from.
//!
//! Must not know: batches, answers, what the numbers of any algorithm mean.

use tollgate_core::limit::State;

use super::bytes::join_pair;

/// The integers of a reply, read one after the other. Nothing is trusted: whatever does not fit is `None`.
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

    /// A pair that is an instant in whole microseconds.
    pub(super) fn micros(&mut self) -> Option<u64> {
        Some(self.pair()? / 1_000)
    }
}

/// The state before a decision, and after it where core cannot tell from the state before.
#[derive(Debug)]
pub(super) struct ObservedState {
    /// What core decides on.
    pub(super) before: State,
    /// What core reports on if nothing was stored, if that is not the same.
    pub(super) unchanged: Option<State>,
    /// What core reports on if the edit was stored, if not what follows from the state before.
    pub(super) changed: Option<State>,
    /// Whether the lease that the operation is about is held.
    pub(super) is_held: bool,
}

impl ObservedState {
    /// A state that came back whole.
    pub(super) const fn whole(before: State) -> Self {
        Self {
            before,
            unchanged: None,
            changed: None,
            is_held: false,
        }
    }
}
