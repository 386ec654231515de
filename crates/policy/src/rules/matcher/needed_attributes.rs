//! The attributes that conditions and keys need, and how the index names them.
//!
//! Must not know: how entries are indexed.

use std::collections::BTreeMap;

use super::super::draft::{DraftLimit, KeySpec, RuleOrigin, RulesDraft};
use super::request_view::Subject;
use crate::attributes::Attribute;
use crate::model::{Match, OnMissing};

/// The attributes without a subject of their own, sorted by how many conditions and keys need them.
pub(super) fn attributes(draft: &RulesDraft, sources: &[(RuleOrigin, &Match)]) -> Box<[Attribute]> {
    let mut counts: BTreeMap<&Attribute, usize> = BTreeMap::new();
    for (_, matching) in sources {
        for condition in &matching.conditions {
            *counts.entry(&condition.value.attribute).or_default() += 1;
        }
    }
    for attribute in draft.limits.iter().flat_map(skipped_without) {
        *counts.entry(attribute).or_default() += 1;
    }
    let mut list: Vec<(&Attribute, usize)> = counts.into_iter().collect();
    list.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    list.into_iter()
        .map(|(attribute, _)| attribute.clone())
        .filter(|attribute| own_subject(attribute).is_none())
        .collect()
}

/// The attributes without which a limit is skipped: every meter needs them for its key, and none denies without a key.
pub(super) fn skipped_without(limit: &DraftLimit) -> Vec<&Attribute> {
    let mut parts = limit.keys.iter().flat_map(|key| &key.parts);
    let Some((first, others)) = limit.keys.split_first() else {
        return Vec::new();
    };
    if parts.any(|part| part.missing == OnMissing::Deny) {
        return Vec::new();
    }
    let needs = |key: &KeySpec, attribute: &Attribute| {
        let mut parts = key.parts.iter();
        parts.any(|part| part.missing == OnMissing::Skip && part.attribute.value == *attribute)
    };
    let attributes = first.parts.iter().map(|part| &part.attribute.value);
    attributes
        // To read a claim, a signature may have to be verified. It is read only if all else matches.
        .filter(|attribute| !matches!(attribute, Attribute::Claim(_)))
        // Whether a path, a host or a route is there depends on how the request is read.
        .filter(|attribute| own_subject(attribute).is_none() && needs(first, attribute))
        .filter(|attribute| others.iter().all(|key| needs(key, attribute)))
        .collect()
}

/// The subject of an attribute that has one of its own.
pub(super) const fn own_subject(attribute: &Attribute) -> Option<Subject> {
    match attribute {
        Attribute::Ip => Some(Subject::Ip),
        Attribute::Path => Some(Subject::Path),
        Attribute::Host => Some(Subject::Host),
        Attribute::Route => Some(Subject::Route),
        _ => None,
    }
}
