//! Combines the outcomes of several limits on one request: charge all of them or none, and name the binding limit.
//!
//! Decide on every limit first, without storing anything, and pass each outcome to [`BatchOutcome::add`]. If the batch is admitted, store
//! every next state. If it is not, store none of them; a correction after the clock went back charges nothing and may be stored either
//! way. After a denial, report the limits that would have allowed from their unchanged state.
//!
//! Must not know: algorithms, states, stores. It sees outcomes and their order.

use crate::outcome::Outcome;
use crate::time::Nanos;

/// The combined outcome of several limits.
///
/// ```
/// use tollgate_core::compose::BatchOutcome;
/// use tollgate_core::{Nanos, Outcome};
///
/// let minute = Outcome::Deny { retry_after: Nanos::from_secs(20) };
/// let day = Outcome::Deny { retry_after: Nanos::HOUR };
/// let outcome: BatchOutcome = [Outcome::Allow, minute, day].into_iter().collect();
/// assert_eq!(outcome.outcome(), day, "the daily limit denies any earlier retry");
/// assert_eq!(outcome.binding(), Some(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct BatchOutcome {
    outcome: Outcome,
    binding: Option<usize>,
    count: usize,
}

/// The former name of [`BatchOutcome`]. The next release removes it.
#[doc(hidden)]
#[deprecated(since = "0.1.0", note = "call it `BatchOutcome`")]
pub type Verdict = BatchOutcome;

impl Default for BatchOutcome {
    /// No limit applies: allowed.
    fn default() -> Self {
        Self {
            outcome: Outcome::Allow,
            binding: None,
            count: 0,
        }
    }
}

impl BatchOutcome {
    /// Adds the next limit's outcome. Limits are numbered from zero in the order they are added.
    #[inline]
    pub fn add(&mut self, outcome: Outcome) {
        // Most limits allow, and no outcome is less strict than that.
        if !matches!(outcome, Outcome::Allow) && severity(outcome) > severity(self.outcome) {
            self.outcome = outcome;
            self.binding = Some(self.count);
        }
        self.count = self.count.saturating_add(1);
    }

    /// The strictest outcome of all limits. After its time, and not before, all of them admit.
    #[must_use]
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Whether every limit admits, so that the caller stores every next state.
    #[must_use]
    pub const fn is_admitted(&self) -> bool {
        self.outcome.is_admitted()
    }

    /// The index of the binding limit: the first of the strictest. `None` if all limits allow.
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

/// Order of strictness: allow, wait, deny, never; among equals the longer time.
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
    fn the_longest_wait_binds_if_no_limit_denies() {
        let wait = |s| Outcome::Wait(Nanos::from_secs(s));
        let outcome: BatchOutcome = [wait(1), Outcome::Allow, wait(3), wait(3)]
            .into_iter()
            .collect();
        assert!(outcome.is_admitted());
        assert_eq!((outcome.outcome(), outcome.binding()), (wait(3), Some(2)));
    }

    #[test]
    fn without_limits_the_outcome_is_allow() {
        assert_eq!(BatchOutcome::default().outcome(), Outcome::Allow);
        assert_eq!(BatchOutcome::default().binding(), None);
    }
}
