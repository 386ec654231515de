//! The status of a Tollgate limit in the terms of Envoy's messages.
//!
//! Must not know: protobuf, how requests are decided.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{LimitState, Verdict};

use super::rls_response::{RlsLimit, RlsStatus};
use crate::config::{RlsCode, WindowUnit};

/// A limit in the terms of Envoy's messages: its quota, in the shortest unit that is at least as long as its window. The same
/// quota over a longer time never promises too much; header fields are exact.
pub(super) fn rls_limit<'a>(verdict: &'a Verdict, state: &LimitState) -> Option<RlsLimit<'a>> {
    let rule = verdict.rule(state)?;
    Some(RlsLimit {
        requests_per_unit: u32::try_from(state.status.limit).unwrap_or(u32::MAX),
        unit: unit_number(verdict.quota_info(state).window()),
        name: &rule.name,
    })
}

/// The number of the unit; zero without a window.
fn unit_number(window: Nanos) -> i32 {
    if window.is_zero() {
        return 0;
    }
    let mut units = WindowUnit::ALL.into_iter();
    let fits = units.find(|unit| unit.length() >= window);
    fits.unwrap_or(WindowUnit::Year).number()
}

/// The outcome of a request by the statuses of its descriptors.
pub(super) fn overall_outcome(statuses: &[RlsStatus<'_>]) -> Outcome {
    let denied = || statuses.iter().filter(|one| one.code == RlsCode::OverLimit);
    if denied().next().is_none() {
        return Outcome::Allow;
    }
    // If one of them never admits it, waiting does not help.
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
    fn a_window_gets_the_shortest_unit_that_it_fits_in() {
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
