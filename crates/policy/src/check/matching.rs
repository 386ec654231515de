//! Conditions that contradict each other, or what else a limit says about the same attribute.
//!
//! Must not know: other limits.

use super::LimitContext;
use crate::attributes::Attribute;
use crate::grammar::template_matches;
use crate::model::{Condition, Match, OnMissing, Policy, Test};
use crate::read::DiagnosticSink;
use crate::source::Located;

/// What `exempt` and `deny` say.
pub(super) fn check_lists(policy: &Policy, report: &mut DiagnosticSink) {
    for matching in &policy.exempt {
        check_contradictions(matching, report);
    }
    for rule in &policy.deny {
        check_contradictions(&rule.matching, report);
    }
}

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let rule = limit.rule;
    check_contradictions(&rule.matching, report);
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
            report.add(
                attribute.location,
                format!(
                    "{}: the key needs `{}`, which `match` asks to be absent, {outcome}",
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
        report.add(
            distinct.location,
            format!(
                "{}: `distinct` counts values of `{}`, which `match` asks to be absent",
                limit.name(),
                distinct.value
            ),
            "count another attribute, or match it as `present`",
        );
    }
    check_tiers(limit, report);
}

fn check_tiers(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let Some(tiers) = &limit.rule.tiers else {
        return;
    };
    let by = &tiers.by;
    match find_condition(&limit.rule.matching, &by.value).map(|condition| &condition.value.test) {
        Some(Test::Absent) => report.add(
            by.location,
            format!(
                "{}: tiers go by `{}`, which `match` asks to be absent",
                limit.name(),
                by.value
            ),
            "leave `tiers` out, or match it as `present`",
        ),
        Some(Test::OneOf(values)) => {
            for (name, _) in &tiers.tiers {
                if !values.contains(&name.value) {
                    report.add(
                        name.location,
                        format!(
                            "{}: tier `{}` is never reached: `match` wants another `{}`",
                            limit.name(),
                            name.value,
                            by.value
                        ),
                        "leave the tier out, or add its value to `match`",
                    );
                }
            }
        }
        _ => {}
    }
}

fn check_contradictions(matching: &Match, report: &mut DiagnosticSink) {
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
        report.add(
            path.location,
            format!(
                "no path here lies under the `route` on line {}, so nothing matches",
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
            report.add(
                cookie.location,
                format!(
                    "`{}` cannot be there while `header.cookie` is absent, so nothing matches",
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
