//! Warns of tiers and overrides beside a `burst` that does not apply to them.
//!
//! A number of units belongs to the rate beside it: a burst of 20 for 100/min would throttle a tier of 1000/s. So tiers do not inherit
//! it; they inherit only `burst: auto`. Must not know: compiled quotas.

use crate::model::{Amount, Burst, LimitRule, Policy, QuotaSpec};
use crate::read::DiagnosticSink;
use crate::source::Located;

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    for limit in &policy.limits {
        let Some(Burst::Units(burst)) = limit.quota.value.burst.as_ref().map(|burst| burst.value)
        else {
            continue;
        };
        for (subject, quota) in other_quotas(limit) {
            if has_default_burst(&quota.value) {
                sink.add(
                    quota.location,
                    format!(
                        "limit `{}`: {subject} does not inherit `burst: {burst}` and admits as many at once as its own rate says",
                        limit.name.value
                    ),
                    "give it a `burst` of its own: `{ rate: 1000/min, burst: 20 }`; or write `burst: auto` for the limit, which is inherited",
                );
            }
        }
    }
}

fn other_quotas(limit: &LimitRule) -> impl Iterator<Item = (String, &Located<QuotaSpec>)> {
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let tiers = tiers.map(|(name, quota)| (format!("tier `{}`", name.value), quota));
    let overrides = limit.overrides.iter();
    tiers.chain(overrides.map(|one| ("an override".to_owned(), &one.quota)))
}

const fn has_default_burst(quota: &QuotaSpec) -> bool {
    quota.burst.is_none()
        && quota.algorithm.has_burst()
        && matches!(quota.amount, Amount::Rates(_) | Amount::Computed(_))
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    /// `burst: 20` beside a tier of 1000/min looked as if the tier had it too. It admits 1,000 at once.
    #[test]
    fn a_tier_that_does_not_inherit_the_burst_is_warned_of() {
        let of = |fields: &str| {
            warnings_of(
                "tier-burst",
                &format!("limits: [{{ name: a, key: claim.sub, rate: 100/min, {fields} }}]"),
            )
        };
        let tiers = |pro: &str| format!("tiers: {{ by: claim.plan, pro: {pro} }}");
        assert_eq!(
            of(&format!("burst: 20, {}", tiers("1000/min"))),
            [
                "limit `a`: tier `pro` does not inherit `burst: 20` and admits as many at once as its own rate says"
            ]
        );
        assert_eq!(
            of("burst: 20, overrides: [{ key: [k], rate: 9/min }]").len(),
            1
        );
        for silent in [
            format!("burst: 20, {}", tiers("{ rate: 1000/min, burst: 50 }")),
            format!("burst: auto, {}", tiers("1000/min")),
            format!("burst: 20, {}", tiers("unlimited")),
            tiers("1000/min"),
        ] {
            assert!(of(&silent).is_empty(), "{silent}");
        }
    }
}
