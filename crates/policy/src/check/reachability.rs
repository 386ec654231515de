//! Finds rules that no request can reach, because another rule takes all of their requests.
//!
//! Denials come before exemptions, and exemptions before limits. Must not know: what rules do.

use std::collections::HashMap;

use super::coverage::covers;
use crate::attributes::Attribute;
use crate::model::{GroupSelection, LimitRule, Mode, Policy};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

/// Comparing all limits of a group is quadratic. A limit is compared with at most this number of earlier limits.
const MAX_COMPARED: usize = 1_000;

pub(super) fn check(policy: &Policy, locations: &FieldLocations, sink: &mut DiagnosticSink) {
    let nowhere = SourceLocation::default();
    let deny_place = |index: usize| locations.deny.get(index).copied().unwrap_or(nowhere);
    let exempt_place = |index: usize| locations.exempt.get(index).copied().unwrap_or(nowhere);
    for (index, rule) in policy.deny.iter().enumerate() {
        let mut before = policy.deny.iter().take(index);
        if let Some(first) = before.position(|first| covers(&first.matching, &rule.matching)) {
            sink.add(
                deny_place(index),
                format!("this `deny` entry is never reached: the one on line {} refuses all of its requests", deny_place(first).line),
                "leave it out, or move it before the other",
            );
        }
    }
    for (index, matching) in policy.exempt.iter().enumerate() {
        if let Some(first) = policy
            .deny
            .iter()
            .position(|deny| covers(&deny.matching, matching))
        {
            sink.add(
                exempt_place(index),
                format!("this `exempt` entry is never reached: the `deny` entry on line {} refuses all of its requests", deny_place(first).line),
                "narrow one of the two: `deny` comes before `exempt`",
            );
        }
    }
    for limit in &policy.limits {
        let name = &limit.name;
        if let Some(first) = policy
            .deny
            .iter()
            .position(|deny| covers(&deny.matching, &limit.matching))
        {
            sink.add(
                name.location,
                format!("limit `{}` is never reached: the `deny` entry on line {} refuses all of its requests", name.value, deny_place(first).line),
                "narrow the `deny` entry, or leave the limit out",
            );
        } else if let Some(first) = policy
            .exempt
            .iter()
            .position(|exempt| covers(exempt, &limit.matching))
        {
            sink.add(
                name.location,
                format!("limit `{}` is never reached: the `exempt` entry on line {} exempts all of its requests", name.value, exempt_place(first).line),
                "narrow the `exempt` entry, or leave the limit out",
            );
        }
    }
    check_groups(policy, sink);
}

/// In a group with `apply: narrowest`, a limit loses to an earlier limit that covers it with as many conditions. A
/// covering limit has conditions on a subset of the attributes. So with as many conditions it uses the same attributes,
/// and only such limits are compared.
fn check_groups(policy: &Policy, sink: &mut DiagnosticSink) {
    let mut comparable: HashMap<(&str, Vec<&Attribute>), Vec<&LimitRule>> = HashMap::new();
    for limit in &policy.limits {
        let Some(group) = &limit.group else { continue };
        let narrowest = policy.groups.iter().any(|known| {
            known.name.value == group.value && known.apply == GroupSelection::Narrowest
        });
        if !narrowest || limit.mode == Mode::Off {
            continue;
        }
        let mut attributes: Vec<&Attribute> = limit
            .matching
            .conditions
            .iter()
            .map(|condition| &condition.value.attribute)
            .collect();
        attributes.sort();
        let before = comparable.entry((&group.value, attributes)).or_default();
        let first = before
            .iter()
            .take(MAX_COMPARED)
            .find(|first| covers(&first.matching, &limit.matching));
        if let Some(first) = first {
            sink.add(
                limit.name.location,
                format!(
                    "limit `{}` is never reached: in group `{}` only the narrowest applies, and `{}` on line {} matches all of its requests with as many conditions",
                    limit.name.value, group.value, first.name.value, first.name.location.line
                ),
                "move it before the other, or add a condition",
            );
        }
        before.push(limit);
    }
}
