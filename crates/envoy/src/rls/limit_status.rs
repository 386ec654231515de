//! The status of a limit of ours as Envoy's messages can say it.
//!
//! Must not know: protobuf, how anything was decided.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{LimitState, Verdict};

use super::rls_response::{RlsLimit, RlsStatus};
use crate::config::{RlsCode, WindowUnit};

/// A limit as Envoy's messages can say it: so many in the shortest unit that its window fits in. Said of a longer time, a
/// quota never promises more than there is; header fields of ours say it exactly.
pub(super) fn rls_limit<'a>(verdict: &'a Verdict, state: &LimitState) -> Option<RlsLimit<'a>> {
    let rule = verdict.rule(state)?;
    Some(RlsLimit {
        requests_per_unit: u32::try_from(state.status.limit).unwrap_or(u32::MAX),
        unit: unit_number(verdict.quota_info(state).window()),
        name: &rule.name,
    })
}

/// The number of the unit; zero where there is no window.
fn unit_number(window: Nanos) -> i32 {
    if window.is_zero() {
        return 0;
    }
    let mut units = WindowUnit::ALL.into_iter();
    let fits = units.find(|unit| unit.length() >= window);
    fits.unwrap_or(WindowUnit::Year).number()
}

/// What is said of a request as a whole, given what is said of its descriptors.
pub(super) fn overall_outcome(statuses: &[RlsStatus<'_>]) -> Outcome {
    let denied = || statuses.iter().filter(|one| one.code == RlsCode::OverLimit);
    if denied().next().is_none() {
        return Outcome::Allow;
    }
    // If one of them never admits it, there is nothing to wait for.
    if denied().any(|one| one.until_reset.is_none()) {
        return Outcome::Never;
    }
    let longest = denied().filter_map(|one| one.until_reset).max();
    Outcome::Deny {
        retry_after: Nanos::from_secs(longest.unwrap_or(1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_said_in_the_shortest_unit_that_they_fit_in() {
        for (seconds, unit) in [
            (1, WindowUnit::Second),
            (2, WindowUnit::Minute),
            (60, WindowUnit::Minute),
            (61, WindowUnit::Hour),
            (86_400, WindowUnit::Day),
            (7 * 86_400, WindowUnit::Week),
            (30 * 86_400, WindowUnit::Month),
            (400 * 86_400, WindowUnit::Year),
        ] {
            assert_eq!(unit_number(Nanos::from_secs(seconds)), unit.number());
        }
        assert_eq!(unit_number(Nanos::ZERO), 0);
    }
}
