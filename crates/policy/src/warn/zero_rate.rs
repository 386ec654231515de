//! Warns of limits that deny every request.
//!
//! Must not know: whether a switch or an override changes that.

use crate::model::{Amount, Mode, Policy};
use crate::read::DiagnosticSink;

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    for limit in &policy.limits {
        if limit.mode.max(policy.mode) != Mode::Enforce || limit.charge_always {
            continue;
        }
        let levels = limit.levels.iter().map(|level| &level.quota);
        let own = limit.levels.is_empty().then_some(&limit.quota);
        for quota in own.into_iter().chain(levels) {
            let is_zero = match &quota.value.amount {
                Amount::Rates(rates) => rates.iter().any(|rate| rate.value.units == 0),
                Amount::Concurrency { permits, .. } => *permits == 0,
                _ => false,
            };
            if is_zero {
                sink.add(
                    quota.location,
                    format!("limit `{}`: an amount of 0 denies every request", limit.name.value),
                    "raise it; to refuse requests use `deny`, to switch the limit off write `mode: off`",
                );
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn a_rate_of_zero_is_warned_of() {
        let of =
            |limit: &str| warnings_of("zero-rate", &format!("limits: [{{ name: a, {limit} }}]"));
        let warned = ["limit `a`: an amount of 0 denies every request"];
        assert_eq!(of("rate: 0/s"), warned);
        assert_eq!(of("rate: [10/s, 0/day]"), warned);
        assert!(of("rate: 1/s").is_empty());
        assert!(of("rate: 0/s, mode: shadow").is_empty());
        // A tier of 0 is how a plan is refused.
        assert!(of("rate: 1/s, tiers: { by: claim.plan, none: 0/s }").is_empty());
    }
}
