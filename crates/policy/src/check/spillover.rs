//! Checks that a limit supports its `spillover`: a second quota that is charged when the limit's own has no room.
//!
//! Must not know: how the engine chooses between the two.

use super::LimitContext;
use super::quota::capacity;
use crate::humanize::format_number;
use crate::model::{Algorithm, Amount, Cost, Count};
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    let Some(spillover) = &rule.spillover else {
        return;
    };
    let name = limit.name();
    for (field, reason) in unsupported_fields(limit) {
        sink.add(
            limit.location(field),
            format!("{name}: `{field}` cannot be combined with `spillover`: {reason}"),
            "keep one of the two",
        );
    }
    let (own, second) = (&rule.quota.value, &spillover.value);
    if [own, second]
        .iter()
        .any(|quota| is_held_or_queued(quota.algorithm))
    {
        sink.add(
            spillover.location,
            format!("{name}: `spillover` is for rates without a queue, and not for `concurrency` or `leaky_queue`"),
            "use another algorithm, or leave `spillover` out",
        );
        return;
    }
    if matches!(&second.amount, Amount::Rates(rates) if rates.len() > 1) {
        sink.add(
            spillover.location,
            format!("{name}: `spillover` must be one rate"),
            "write one rate; use a separate limit for a rate that must always hold",
        );
    } else if second.unit != own.unit {
        sink.add(
            spillover.location,
            format!(
                "{name}: `spillover` counts {}, and the limit counts {}",
                second.unit.name(),
                own.unit.name()
            ),
            "use the same unit in both",
        );
    } else if let (Cost::Fixed(cost), Some(max)) = (&rule.cost, capacity(spillover, rule.overdraft))
        && *cost > max
    {
        sink.add(
            spillover.location,
            format!(
                "{name}: `spillover` can never admit a request: a request costs {}, and the capacity is {}",
                format_number(*cost),
                format_number(max)
            ),
            "lower the cost, or raise the `burst` of `spillover`",
        );
    }
}

const fn is_held_or_queued(algorithm: Algorithm) -> bool {
    matches!(algorithm, Algorithm::Concurrency | Algorithm::LeakyQueue)
}

/// The fields of a limit that exclude `spillover`, and why.
fn unsupported_fields(limit: &LimitContext<'_>) -> Vec<(&'static str, &'static str)> {
    let rule = limit.rule;
    let fields = [
        (
            rule.wait.is_some(),
            "wait",
            "a request without room would both wait and be charged elsewhere",
        ),
        (
            rule.charge_always,
            "charge",
            "`charge: always` never denies, so the second quota would never be charged",
        ),
        (
            rule.count != Count::Requests,
            "count",
            "it charges after the response, when the choice is made already",
        ),
        (
            rule.distinct.is_some(),
            "distinct",
            "a value counts in one quota only",
        ),
        (
            rule.bucket.is_some(),
            "bucket",
            "limits that share a state would disagree about the second quota",
        ),
        (
            rule.candidate.is_some(),
            "candidate",
            "it would be compared without a second quota",
        ),
    ];
    let excluded = fields.into_iter().filter(|(is_set, _, _)| *is_set);
    excluded.map(|(_, field, reason)| (field, reason)).collect()
}
