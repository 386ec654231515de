//! Which attributes of a policy a client can send more than once, and which of their values counts.
//!
//! Must not know: how requests are read.

use std::collections::BTreeSet;

use crate::attributes::Attribute;
use crate::model::{Amount, Cost, DuplicateRule, LimitRule, Policy, QuotaSpec};

/// Every header, cookie and query parameter that the policy reads, with its rule.
pub(super) fn duplicate_rules(policy: &Policy) -> Vec<(Attribute, DuplicateRule)> {
    let mut attributes = BTreeSet::new();
    let lists = policy.exempt.iter();
    let lists = lists.chain(policy.deny.iter().map(|deny| &deny.matching));
    for matching in lists.chain(policy.limits.iter().map(|limit| &limit.matching)) {
        let conditions = matching.conditions.iter();
        attributes.extend(conditions.map(|condition| &condition.value.attribute));
    }
    policy
        .limits
        .iter()
        .for_each(|limit| add_limit(limit, &mut attributes));
    let rule = |attribute: &Attribute| {
        let settings = policy.duplicates.iter();
        settings
            .rev()
            .find(|setting| setting.attribute.value == *attribute)
            .map_or_else(DuplicateRule::default, |setting| setting.rule)
    };
    attributes
        .into_iter()
        .filter(|attribute| {
            matches!(
                attribute,
                Attribute::Header(_) | Attribute::Query(_) | Attribute::Cookie(_)
            )
        })
        .map(|attribute| (attribute.clone(), rule(attribute)))
        .collect()
}

fn add_limit<'a>(limit: &'a LimitRule, attributes: &mut BTreeSet<&'a Attribute>) {
    let levels = || limit.levels.iter();
    let parts = limit
        .key
        .iter()
        .chain(levels().flat_map(|level| &level.key));
    attributes.extend(parts.map(|part| &part.attribute.value));
    attributes.extend(limit.distinct.iter().map(|distinct| &distinct.value));
    attributes.extend(limit.tiers.iter().map(|tiers| &tiers.by.value));
    match &limit.cost {
        Cost::ByValue { attribute, .. } | Cost::Attribute { attribute, .. } => {
            attributes.insert(attribute);
        }
        Cost::Fixed(_) | Cost::Response { .. } | Cost::ResponseBody { .. } => {}
    }
    let tiers = limit.tiers.iter().flat_map(|tiers| &tiers.tiers);
    let quotas = tiers
        .map(|(_, quota)| quota)
        .chain(limit.overrides.iter().map(|one| &one.quota))
        .chain(levels().map(|level| &level.quota))
        .chain([&limit.quota])
        .chain(&limit.local)
        .chain(&limit.spillover)
        .chain(&limit.candidate);
    attributes.extend(quotas.filter_map(|quota| factor(&quota.value)));
}

/// The attribute that a rate grows with.
const fn factor(quota: &QuotaSpec) -> Option<&Attribute> {
    match &quota.amount {
        Amount::Computed(computed) => Some(&computed.times),
        _ => None,
    }
}
