//! Which attributes the parts of a policy read.
//!
//! Must not know: how requests are read, what attributes are for.

use std::collections::BTreeSet;

use crate::attributes::Attribute;
use crate::model::{Amount, Cost, LimitRule, Match, Policy, QuotaSpec};

/// Every attribute that lists and limits read.
pub(crate) fn policy_attributes(policy: &Policy) -> BTreeSet<&Attribute> {
    let lists = policy.exempt.iter();
    let lists = lists.chain(policy.deny.iter().map(|deny| &deny.matching));
    let classes = policy.priorities.iter();
    let lists = lists.chain(classes.filter_map(|class| class.matching.as_ref()));
    let mut attributes: BTreeSet<&Attribute> = lists.flat_map(match_attributes).collect();
    attributes.extend(policy.limits.iter().flat_map(limit_attributes));
    attributes
}

/// Every attribute that conditions read.
pub(crate) fn match_attributes(matching: &Match) -> impl Iterator<Item = &Attribute> {
    let conditions = matching.conditions.iter();
    conditions.map(|condition| &condition.value.attribute)
}

/// Every attribute that a limit reads, in its conditions, keys, tiers, shares, costs and quotas.
pub(crate) fn limit_attributes(limit: &LimitRule) -> BTreeSet<&Attribute> {
    let mut attributes: BTreeSet<&Attribute> = match_attributes(&limit.matching).collect();
    let levels = || limit.levels.iter();
    let parts = limit
        .key
        .iter()
        .chain(levels().flat_map(|level| &level.key));
    attributes.extend(parts.map(|part| &part.attribute.value));
    attributes.extend(limit.distinct.iter().map(|distinct| &distinct.value));
    attributes.extend(limit.tiers.iter().map(|tiers| &tiers.by.value));
    attributes.extend(limit.shares.iter().map(|shares| &shares.by.value));
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
    attributes
}

/// The attribute that a rate grows with.
const fn factor(quota: &QuotaSpec) -> Option<&Attribute> {
    match &quota.amount {
        Amount::Computed(computed) => Some(&computed.times),
        _ => None,
    }
}
