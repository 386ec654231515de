//! Several limits on one request: spend on all of them or on none, and name the one that binds.
//!
//! Decide on every limit first, without storing anything, and show each outcome to [`Verdict::add`]. If the verdict
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
/// use tollgate_core::compose::Verdict;
/// use tollgate_core::{Nanos, Outcome};
///
/// let minute = Outcome::Deny { retry_after: Nanos::from_secs(20) };
/// let day = Outcome::Deny { retry_after: Nanos::HOUR };
/// let verdict: Verdict = [Outcome::Allow, minute, day].into_iter().collect();
/// assert_eq!(verdict.outcome(), day, "retrying any earlier would be refused by the day");
/// assert_eq!(verdict.binding(), Some(2));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Verdict {
    outcome: Outcome,
    binding: Option<usize>,
    seen: usize,
}

impl Default for Verdict {
    /// No limit applies: allowed.
    fn default() -> Self {
        Self {
            outcome: Outcome::Allow,
            binding: None,
            seen: 0,
        }
    }
}

impl Verdict {
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

impl FromIterator<Outcome> for Verdict {
    fn from_iter<I: IntoIterator<Item = Outcome>>(outcomes: I) -> Self {
        let mut verdict = Self::default();
        for outcome in outcomes {
            verdict.add(outcome);
        }
        verdict
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
        let verdict: Verdict = [Outcome::Never, soon].into_iter().collect();
        assert_eq!(
            (verdict.outcome(), verdict.binding()),
            (Outcome::Never, Some(0))
        );
    }

    #[test]
    fn the_longest_wait_is_waited_if_nobody_denies() {
        let wait = |s| Outcome::Wait(Nanos::from_secs(s));
        let verdict: Verdict = [wait(1), Outcome::Allow, wait(3), wait(3)]
            .into_iter()
            .collect();
        assert!(verdict.is_admitted());
        assert_eq!((verdict.outcome(), verdict.binding()), (wait(3), Some(2)));
    }

    #[test]
    fn no_limits_allow() {
        assert_eq!(Verdict::default().outcome(), Outcome::Allow);
        assert_eq!(Verdict::default().binding(), None);
    }
}
