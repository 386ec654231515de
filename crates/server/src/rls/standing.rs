//! Where a limit of ours stands, in the words of Envoy's messages and in those of header fields.
//!
//! Must not know: protobuf, how anything was decided.

use tollgate_core::{Nanos, Outcome};
use tollgate_engine::{LimitState, Standing as Stance, Verdict};
use tollgate_http::{Answer, Dialects, Policy, Standing, Words};
use tollgate_policy::envoy::{Code, Unit};
use tollgate_policy::rules::Role;

use super::said::{Limit, Status};

/// A limit as Envoy's messages can say it: so many in the shortest unit that its window fits in. Said of a longer time, a
/// quota never promises more than there is; header fields of ours say it exactly.
pub(super) fn limit_of<'a>(verdict: &'a Verdict, state: &LimitState) -> Option<Limit<'a>> {
    let rule = verdict.rule(state)?;
    Some(Limit {
        requests_per_unit: u32::try_from(state.status.limit).unwrap_or(u32::MAX),
        unit: unit_of(state.window()),
        name: &rule.name,
    })
}

/// The number of the unit; zero where there is no window.
fn unit_of(window: Nanos) -> i32 {
    if window.is_zero() {
        return 0;
    }
    let mut units = Unit::ALL.into_iter();
    let fits = units.find(|unit| unit.length() >= window);
    fits.unwrap_or(Unit::Year).number()
}

/// The header fields of several verdicts about one request: all limits that are enforced, and when to come back.
pub(super) fn write_words<'a>(
    verdicts: impl Iterator<Item = &'a Verdict>,
    statuses: &[Status<'_>],
    words: &mut Words,
) {
    let mut labels: Vec<(Policy, &LimitState)> = Vec::new();
    for verdict in verdicts {
        for state in verdict.limits() {
            let is_told = state.role() == Role::Main || !state.outcome.is_admitted();
            if state.standing != Stance::Enforced || !is_told {
                continue;
            }
            let Some(label) = label_of(verdict, state) else {
                continue;
            };
            // Descriptors may fall under the same limit; then the tighter one speaks for it.
            match labels.iter_mut().find(|(known, _)| *known == label) {
                Some((_, known)) if state.status.remaining < known.status.remaining => {
                    *known = state;
                }
                Some(_) => {}
                None => labels.push((label, state)),
            }
        }
    }
    let is_over = statuses.iter().any(|one| one.code == Code::OverLimit);
    let standings: Vec<Standing<'_>> = labels
        .iter()
        .map(|(label, state)| {
            Standing::new(label, state.outcome, &state.status).with_more_after(state.more_after())
        })
        .collect();
    Answer::new(outcome(is_over, statuses), &standings).write(Dialects::default(), words);
}

/// What is said of the request as a whole.
fn outcome(is_over: bool, statuses: &[Status<'_>]) -> Outcome {
    if !is_over {
        return Outcome::Allow;
    }
    let denied = statuses.iter().filter(|one| one.code == Code::OverLimit);
    // If one of them never admits it, there is nothing to wait for.
    let waits = denied.map(|one| one.until_reset);
    match waits.collect::<Option<Vec<u64>>>() {
        Some(waits) => Outcome::Deny {
            retry_after: Nanos::from_secs(waits.into_iter().max().unwrap_or(1)),
        },
        None => Outcome::Never,
    }
}

fn label_of(verdict: &Verdict, state: &LimitState) -> Option<Policy> {
    let rule = verdict.rule(state)?;
    let (limit, window, unit) = (state.status.limit, state.window(), state.unit());
    let name = &*rule.name;
    let named = match verdict.level(state) {
        Some(level) => Policy::new(&format!("{name}/{level}"), limit, window, unit),
        None if state.meter_index() > 0 && state.role() == Role::Main => {
            let number = state.meter_index().saturating_add(1);
            Policy::new(&format!("{name}#{number}"), limit, window, unit)
        }
        None => Policy::new(name, limit, window, unit),
    };
    named.ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows_are_said_in_the_shortest_unit_that_they_fit_in() {
        for (seconds, unit) in [
            (1, Unit::Second),
            (2, Unit::Minute),
            (60, Unit::Minute),
            (61, Unit::Hour),
            (86_400, Unit::Day),
            (7 * 86_400, Unit::Week),
            (30 * 86_400, Unit::Month),
            (400 * 86_400, Unit::Year),
        ] {
            assert_eq!(unit_of(Nanos::from_secs(seconds)), unit.number());
        }
        assert_eq!(unit_of(Nanos::ZERO), 0);
    }
}
