//! Checks that conditions do not contradict each other, or other fields of the limit that use the same attribute.
//!
//! Must not know: other limits.

use super::LimitContext;
use crate::attributes::Attribute;
use crate::grammar::template_matches;
use crate::model::{Condition, Match, OnMissing, Policy, Test};
use crate::read::DiagnosticSink;
use crate::source::Located;

/// Checks the conditions of `exempt` and `deny`.
pub(super) fn check_lists(policy: &Policy, sink: &mut DiagnosticSink) {
    for matching in &policy.exempt {
        check_contradictions(matching, sink);
    }
    for rule in &policy.deny {
        check_contradictions(&rule.matching, sink);
    }
}

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let rule = limit.rule;
    check_contradictions(&rule.matching, sink);
    let keys = rule
        .key
        .iter()
        .chain(rule.levels.iter().flat_map(|level| &level.key));
    for part in keys {
        let attribute = &part.attribute;
        let outcome = match part.missing {
            OnMissing::Shared => continue,
            OnMissing::Skip => "so the limit never applies",
            OnMissing::Deny => "so every request that it matches is refused",
        };
        if requires_absence(&rule.matching, &attribute.value) {
            sink.add(
                attribute.location,
                format!(
                    "{}: the key needs `{}`, which `match` requires to be absent, {outcome}",
                    limit.name(),
                    attribute.value
                ),
                "leave it out of the key, or match it as `present`",
            );
        }
    }
    if let Some(distinct) = &rule.distinct
        && requires_absence(&rule.matching, &distinct.value)
    {
        sink.add(
            distinct.location,
            format!(
                "{}: `distinct` counts values of `{}`, which `match` requires to be absent",
                limit.name(),
                distinct.value
            ),
            "count another attribute, or match it as `present`",
        );
    }
    check_selected_values(limit, sink);
}

/// A value that `match` excludes selects neither a tier nor a share.
fn check_selected_values(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    if let Some(tiers) = &limit.rule.tiers {
        let names = tiers.tiers.iter().map(|(name, _)| name);
        check_values(limit, ("tiers", "tier"), &tiers.by, names, sink);
    }
    if let Some(shares) = &limit.rule.shares {
        let names = shares.shares.iter().map(|(name, _)| name);
        check_values(limit, ("shares", "share"), &shares.by, names, sink);
    }
}

fn check_values<'a>(
    limit: &LimitContext<'_>,
    (field, one): (&str, &str),
    by: &Located<Attribute>,
    names: impl Iterator<Item = &'a Located<Box<str>>>,
    sink: &mut DiagnosticSink,
) {
    match find_condition(&limit.rule.matching, &by.value).map(|condition| &condition.value.test) {
        Some(Test::Absent) => sink.add(
            by.location,
            format!(
                "{}: {field} use `{}`, which `match` requires to be absent",
                limit.name(),
                by.value
            ),
            format!("leave `{field}` out, or match it as `present`"),
        ),
        Some(Test::OneOf(values)) => {
            for name in names.filter(|name| !values.contains(&name.value)) {
                sink.add(
                    name.location,
                    format!(
                        "{}: {one} `{}` is never reached: `match` does not allow this value of `{}`",
                        limit.name(),
                        name.value,
                        by.value
                    ),
                    format!("leave the {one} out, or add its value to `match`"),
                );
            }
        }
        _ => {}
    }
}

fn check_contradictions(matching: &Match, sink: &mut DiagnosticSink) {
    let route = find_condition(matching, &Attribute::Route);
    let path = find_condition(matching, &Attribute::Path);
    if let (Some(route), Some(path)) = (route, path)
        && let (Test::Route(templates), Test::OneOf(paths)) = (&route.value.test, &path.value.test)
        && !paths.iter().any(|path| {
            templates
                .iter()
                .any(|template| template_matches(template, path))
        })
    {
        sink.add(
            path.location,
            format!(
                "no path here matches the `route` on line {}, so nothing matches",
                route.location.line
            ),
            "keep one of `route` and `path`",
        );
    }
    if requires_absence(matching, &Attribute::Header("cookie".into())) {
        let cookie = matching.conditions.iter().find(|condition| {
            matches!(condition.value.attribute, Attribute::Cookie(_))
                && condition.value.test != Test::Absent
        });
        if let Some(cookie) = cookie {
            sink.add(
                cookie.location,
                format!(
                    "`{}` cannot be present while `header.cookie` is absent, so nothing matches",
                    cookie.value.attribute
                ),
                "keep one of the two conditions",
            );
        }
    }
}

fn find_condition<'a>(
    matching: &'a Match,
    attribute: &Attribute,
) -> Option<&'a Located<Condition>> {
    matching
        .conditions
        .iter()
        .find(|condition| condition.value.attribute == *attribute)
}

fn requires_absence(matching: &Match, attribute: &Attribute) -> bool {
    find_condition(matching, attribute)
        .is_some_and(|condition| condition.value.test == Test::Absent)
}
