//! Checks that names and ids are unique, and finds misspelled names.
//!
//! Must not know: what the names refer to.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::grammar::nearest_name;
use crate::model::{Policy, Template, Test};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

pub(super) fn check(policy: &Policy, locations: &FieldLocations, sink: &mut DiagnosticSink) {
    check_limit_names(locations, sink);
    let mut ids: HashMap<u16, (&str, SourceLocation)> = HashMap::new();
    for limit in &policy.limits {
        let name = &*limit.name.value;
        if let Some(id) = &limit.id {
            if let Some((other, first)) = ids.get(&id.value) {
                sink.add(
                    id.location,
                    format!(
                        "limits `{other}` and `{name}` both have the id {}; the first on line {}",
                        id.value, first.line
                    ),
                    "change one of them: limits with the same id would share their state",
                );
            } else {
                ids.insert(id.value, (name, id.location));
            }
        }
        if name == Policy::PREFLIGHTS_NAME {
            sink.add(
                limit.name.location,
                format!("`{name}` is the name of the built-in limit of CORS preflights"),
                "choose another name; `preflights: RATE` sets the quota of the built-in limit",
            );
        }
        check_group(policy, limit.group.as_ref(), sink);
    }
    check_routes(policy, sink);
}

fn check_limit_names(locations: &FieldLocations, sink: &mut DiagnosticSink) {
    let mut names: HashMap<&str, SourceLocation> = HashMap::new();
    for name in &locations.names {
        match names.entry(&name.value) {
            Entry::Vacant(free) => drop(free.insert(name.location)),
            Entry::Occupied(first) => sink.add(
                name.location,
                format!(
                    "two limits are named `{}`; the first on line {}",
                    name.value,
                    first.get().line
                ),
                "rename one of them: state, metrics and messages use the name",
            ),
        }
    }
}

/// A group need not be declared, but a name close to a declared group is a typo.
fn check_group(
    policy: &Policy,
    group: Option<&crate::source::Located<Box<str>>>,
    sink: &mut DiagnosticSink,
) {
    let Some(group) = group else { return };
    let declared = || policy.groups.iter().map(|group| &*group.name.value);
    if declared().any(|name| name == &*group.value) {
        return;
    }
    if let Some(meant) = nearest_name(&group.value, declared()) {
        sink.add(
            group.location,
            format!("unknown group `{}`", group.value),
            format!("did you mean `{meant}`?"),
        );
    }
}

/// Templates that match the same paths with different parameter names would make `route` keys depend on their order.
fn check_routes(policy: &Policy, sink: &mut DiagnosticSink) {
    let listed = policy
        .routes
        .iter()
        .map(|route| (&route.value, route.location));
    let matched = policy.limits.iter().flat_map(|limit| {
        limit.matching.conditions.iter().flat_map(|condition| {
            let templates = match &condition.value.test {
                Test::Route(templates) => templates.as_slice(),
                _ => &[],
            };
            templates
                .iter()
                .map(|template| (template, condition.location))
        })
    });
    let mut shapes: HashMap<String, (&Template, SourceLocation)> = HashMap::new();
    for (template, location) in listed.chain(matched) {
        let (first, at) = *shapes
            .entry(without_parameter_names(template))
            .or_insert((template, location));
        if first != template {
            sink.add(
                location,
                format!(
                    "templates `{}` and `{}` match the same paths; the first on line {}",
                    first.0, template.0, at.line
                ),
                format!("write `{}` in both places", first.0),
            );
        }
    }
}

/// The template without its parameter names.
fn without_parameter_names(template: &Template) -> String {
    template
        .0
        .split('/')
        .map(|segment| match segment.get(..2) {
            Some("{*") => "{*}",
            Some(start) if start.starts_with('{') => "{}",
            _ => segment,
        })
        .collect::<Vec<_>>()
        .join("/")
}
