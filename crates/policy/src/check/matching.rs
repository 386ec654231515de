//! Conditions that contradict each other, or what else a limit says about the same attribute.
//!
//! Must not know: other limits.

use super::Checked;
use crate::attributes::Attribute;
use crate::model::{Condition, Match, Missing, Policy, Test};
use crate::read::Report;
use crate::source::At;
use crate::words::template_holds;

/// What `exempt` and `deny` say.
pub(super) fn check_lists(policy: &Policy, report: &mut Report) {
    for matching in &policy.exempt {
        contradictions(matching, report);
    }
    for rule in &policy.deny {
        contradictions(&rule.matching, report);
    }
}

pub(super) fn check(limit: &Checked<'_>, report: &mut Report) {
    let rule = limit.rule;
    contradictions(&rule.matching, report);
    let keys = rule
        .key
        .iter()
        .chain(rule.levels.iter().flat_map(|level| &level.key));
    for part in keys {
        let attribute = &part.attribute;
        let outcome = match part.missing {
            Missing::Shared => continue,
            Missing::Skip => "so the limit never applies",
            Missing::Deny => "so every request that it matches is refused",
        };
        if asks_absence(&rule.matching, &attribute.value) {
            report.say(
                attribute.place,
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
        && asks_absence(&rule.matching, &distinct.value)
    {
        report.say(
            distinct.place,
            format!(
                "{}: `distinct` counts values of `{}`, which `match` asks to be absent",
                limit.name(),
                distinct.value
            ),
            "count another attribute, or match it as `present`",
        );
    }
    tiers(limit, report);
}

fn tiers(limit: &Checked<'_>, report: &mut Report) {
    let Some(tiers) = &limit.rule.tiers else {
        return;
    };
    let by = &tiers.by;
    match find(&limit.rule.matching, &by.value).map(|condition| &condition.value.test) {
        Some(Test::Absent) => report.say(
            by.place,
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
                    report.say(
                        name.place,
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

fn contradictions(matching: &Match, report: &mut Report) {
    let route = find(matching, &Attribute::Route);
    let path = find(matching, &Attribute::Path);
    if let (Some(route), Some(path)) = (route, path)
        && let (Test::Route(templates), Test::OneOf(paths)) = (&route.value.test, &path.value.test)
        && !paths.iter().any(|path| {
            templates
                .iter()
                .any(|template| template_holds(template, path))
        })
    {
        report.say(
            path.place,
            format!(
                "no path here lies under the `route` on line {}, so nothing matches",
                route.place.line
            ),
            "keep one of `route` and `path`",
        );
    }
    if asks_absence(matching, &Attribute::Header("cookie".into())) {
        let cookie = matching.conditions.iter().find(|condition| {
            matches!(condition.value.attribute, Attribute::Cookie(_))
                && condition.value.test != Test::Absent
        });
        if let Some(cookie) = cookie {
            report.say(
                cookie.place,
                format!(
                    "`{}` cannot be there while `header.cookie` is absent, so nothing matches",
                    cookie.value.attribute
                ),
                "keep one of the two conditions",
            );
        }
    }
}

fn find<'a>(matching: &'a Match, attribute: &Attribute) -> Option<&'a At<Condition>> {
    matching
        .conditions
        .iter()
        .find(|condition| condition.value.attribute == *attribute)
}

fn asks_absence(matching: &Match, attribute: &Attribute) -> bool {
    find(matching, attribute).is_some_and(|condition| condition.value.test == Test::Absent)
}
