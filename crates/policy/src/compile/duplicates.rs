//! Which attributes of a policy a client can send more than once, and which of their values counts.
//!
//! Must not know: how requests are read.

use super::attributes_read::policy_attributes;
use crate::attributes::Attribute;
use crate::model::{DuplicateRule, Policy};

/// Every header, cookie and query parameter that the policy reads, with its rule.
pub(super) fn duplicate_rules(policy: &Policy) -> Vec<(Attribute, DuplicateRule)> {
    let mut attributes = policy_attributes(policy);
    attributes.extend(policy.jwt.iter().map(|jwt| &jwt.from));
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
