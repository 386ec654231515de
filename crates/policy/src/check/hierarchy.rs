//! Checks levels: each adds to the key of the level above and has a unique name. Checks that the `colocate` attribute
//! is part of the key.
//!
//! Must not know: quotas.

use super::LimitContext;
use crate::attributes::Attribute;
use crate::read::DiagnosticSink;

pub(super) fn check(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
    let mut above: Vec<&Attribute> = Vec::new();
    let levels = &limit.rule.levels;
    for (index, level) in levels.iter().enumerate() {
        let name = &level.name;
        let before = levels.iter().take(index);
        if let Some(first) = before.clone().find(|first| first.name == *name) {
            sink.add(
                name.location,
                format!(
                    "{}: two levels are named `{}`; the first on line {}",
                    limit.name(),
                    name.value,
                    first.name.location.line
                ),
                "rename one of them: verdicts report the level that denied",
            );
        }
        if index > 0 && level.key.is_empty() {
            sink.add(
                name.location,
                format!(
                    "{}: level `{}` adds nothing to the key of the level above",
                    limit.name(),
                    name.value
                ),
                "give it a `key`, or use the lower quota on the level above",
            );
        }
        for part in &level.key {
            if above.contains(&&part.attribute.value) {
                sink.add(
                    part.attribute.location,
                    format!(
                        "{}: the key of level `{}` repeats `{}` of a level above",
                        limit.name(),
                        name.value,
                        part.attribute.value
                    ),
                    "write only the attributes that this level adds",
                );
            }
            above.push(&part.attribute.value);
        }
        if let Some(first) = levels.first()
            && first.quota.value.unit != level.quota.value.unit
        {
            sink.add(
                level.quota.location,
                format!(
                    "{}: level `{}` counts {}, and the first level counts {}",
                    limit.name(),
                    name.value,
                    level.quota.value.unit.name(),
                    first.quota.value.unit.name()
                ),
                "use the same unit on every level: a request has one cost",
            );
        }
    }
    check_colocate(limit, sink);
}

/// The `colocate` attribute decides the cluster slot of a state. If it were not part of the key, one key could have
/// states in several slots, each with the full quota.
fn check_colocate(limit: &LimitContext<'_>, sink: &mut DiagnosticSink) {
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
        sink.add(
            colocate.location,
            format!("{}: `colocate` is `{}`, which is not part of the key, so one key would have states in several slots", limit.name(), colocate.value),
            if limit.rule.levels.is_empty() {
                "use an attribute of the key"
            } else {
                "use an attribute of the widest level's key"
            },
        );
    }
}
