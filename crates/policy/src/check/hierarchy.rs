//! Levels: each must add to the key of the one above, and have a name of its own. And `colocate`, which must be part of
//! every key that it puts into one place.
//!
//! Must not know: quotas.

use super::LimitContext;
use crate::attributes::Attribute;
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let mut above: Vec<&Attribute> = Vec::new();
    let levels = &limit.rule.levels;
    for (index, level) in levels.iter().enumerate() {
        let name = &level.name;
        let before = levels.iter().take(index);
        if let Some(first) = before.clone().find(|first| first.name == *name) {
            report.add(
                name.location,
                format!(
                    "{}: two levels are called `{}`; the first on line {}",
                    limit.name(),
                    name.value,
                    first.name.location.line
                ),
                "give one of them another name: verdicts name the level that was violated",
            );
        }
        if index > 0 && level.key.is_empty() {
            report.add(
                name.location,
                format!(
                    "{}: level `{}` adds nothing to the key of the level above",
                    limit.name(),
                    name.value
                ),
                "give it a `key`, or give the level above the smaller quota",
            );
        }
        for part in &level.key {
            if above.contains(&&part.attribute.value) {
                report.add(
                    part.attribute.location,
                    format!(
                        "{}: level `{}` names `{}`, which a level above already has",
                        limit.name(),
                        name.value,
                        part.attribute.value
                    ),
                    "name only what this level adds",
                );
            }
            above.push(&part.attribute.value);
        }
        if let Some(first) = levels.first()
            && first.quota.value.unit != level.quota.value.unit
        {
            report.add(
                level.quota.location,
                format!(
                    "{}: level `{}` counts {}, and the first level {}",
                    limit.name(),
                    name.value,
                    level.quota.value.unit.name(),
                    first.quota.value.unit.name()
                ),
                "count the same unit on every level: a request has one cost",
            );
        }
    }
    check_colocate(limit, report);
}

/// A key's state lies where its `colocate` attribute says; if that were not part of the key, one key would have a state
/// in several places, and its limit several times over.
fn check_colocate(limit: &LimitContext<'_>, report: &mut DiagnosticSink) {
    let Some(colocate) = &limit.rule.colocate else {
        return;
    };
    let key = limit
        .rule
        .levels
        .first()
        .map_or(&limit.rule.key, |widest| &widest.key);
    if key
        .iter()
        .all(|part| part.attribute.value != colocate.value)
    {
        report.add(
            colocate.location,
            format!("{}: `colocate` names `{}`, which is not part of the key, so one key would be counted in several places", limit.name(), colocate.value),
            if limit.rule.levels.is_empty() {
                "name an attribute of the key"
            } else {
                "name an attribute of the widest level's key"
            },
        );
    }
}
