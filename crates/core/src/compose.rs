//! Several limits on one request: spend on all of them or on none, and name the one that binds.
//!
//! Decide on every limit first, without storing anything, and show each outcome to [`BatchOutcome::add`]. If the outcome
//! admits, store every next state; if it does not, store none of them (corrections of a clock that went back may be
//! stored either way, they charge nothing). What the client is told of a limit that would have allowed must then
//! come from its unchanged state.
//!
//! Must not know: algorithms, states, stores. It sees outcomes and their order.

use crate::outcome::Outcome;
use crate::time::Nanos;

/// What several limits say together.
///
/// ```
/// use tollgate_core::compose::BatchOutcome;
/// use tollgate_core::{Nanos, Outcome};
///
/// let minute = Outcome::Deny { retry_after: Nanos::from_secs(20) };
/// let day = Outcome::Deny { retry_after: Nanos::HOUR };
/// let outcome: BatchOutcome = [Outcome::Allow, minute, day].into_iter().collect();
/// assert_eq!(outcome.outcome(), day, "retrying any earlier would be refused by the day");
/// assert_eq!(outcome.binding(), Some(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BatchOutcome {
    outcome: Outcome,
    binding: Option<usize>,
    seen: usize,
}

/// The former name of [`BatchOutcome`]. It goes with the next release.
#[doc(hidden)]
pub type Verdict = BatchOutcome;

impl Default for BatchOutcome {
    /// No limit applies: allowed.
    fn default() -> Self {
        Self {
            outcome: Outcome::Allow,
            binding: None,
            seen: 0,
        }
    }
}

impl BatchOutcome {
    /// Takes the next limit's outcome into account. Limits are numbered from zero in the order they are added.
    #[inline]
    pub fn add(&mut self, outcome: Outcome) {
        // Nothing is less strict than allowing, which is what most limits do.
        if !matches!(outcome, Outcome::Allow) && severity(outcome) > severity(self.outcome) {
            self.outcome = outcome;
            self.binding = Some(self.seen);
        }
        self.seen = self.seen.saturating_add(1);
    }

    /// The outcome of all limits together: the strictest. After its time, and not before, all of them admit.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether every limit admits, so that every next state is to be stored.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.outcome.is_admitted()
    }

    /// Which limit decided: the first of the strictest. `None` if all simply allow.
    #[must_use]
    pub const fn binding(&self) -> Option<usize> {
        self.binding
    }
}

impl FromIterator<Outcome> for BatchOutcome {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        let mut all = Self::default();
        for outcome in outcomes {
            all.add(outcome);
        }
        all
    }
}

/// Allow, then wait, then deny, then never; within each, the longer time.
const fn severity(outcome: Outcome) -> (u8, u64) {
    const fn rank(rank: u8, time: Nanos) -> (u8, u64) {
        (rank, time.as_nanos())
    }
    match outcome {
        Outcome::Allow => rank(0, Nanos::ZERO),
        Outcome::Wait(wait) => rank(1, wait),
        Outcome::Deny { retry_after } => rank(2, retry_after),
        Outcome::Never => rank(3, Nanos::ZERO),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn never_outranks_any_wait() {
        let soon = Outcome::Deny {
            retry_after: Nanos::MAX,
        };
        let outcome: BatchOutcome = [Outcome::Never, soon].into_iter().collect();
        assert_eq!(
            (outcome.outcome(), outcome.binding()),
            (Outcome::Never, Some(0))
        );
    }

    #[test]
    fn the_longest_wait_is_waited_if_nobody_denies() {
        let wait = |s| Outcome::Wait(Nanos::from_secs(s));
        let outcome: BatchOutcome = [wait(1), Outcome::Allow, wait(3), wait(3)]
            .into_iter()
            .collect();
        assert!(outcome.is_admitted());
        assert_eq!((outcome.outcome(), outcome.binding()), (wait(3), Some(2)));
    }

    #[test]
    fn no_limits_allow() {
        assert_eq!(BatchOutcome::default().outcome(), Outcome::Allow);
        assert_eq!(BatchOutcome::default().binding(), None);
    }
}
