//! Names and numbers that must be different, and names that are probably slips.
//!
//! Must not know: what is named.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::grammar::nearest_name;
use crate::model::{Policy, Template, Test};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

pub(super) fn check(policy: &Policy, places: &FieldLocations, report: &mut DiagnosticSink) {
    check_limit_names(places, report);
    let mut ids: HashMap<u16, (&str, SourceLocation)> = HashMap::new();
    for limit in &policy.limits {
        let name = &*limit.name.value;
        if let Some(id) = &limit.id {
            if let Some((other, first)) = ids.get(&id.value) {
                report.add(
                    id.location,
                    format!(
                        "limits `{other}` and `{name}` both have the id {}; the first on line {}",
                        id.value, first.line
                    ),
                    "give one of them another number: limits with one id would count together",
                );
            } else {
                ids.insert(id.value, (name, id.location));
            }
        }
        check_group(policy, limit.group.as_ref(), report);
    }
    check_routes(policy, report);
}

fn check_limit_names(places: &FieldLocations, report: &mut DiagnosticSink) {
    let mut names: HashMap<&str, SourceLocation> = HashMap::new();
    for name in &places.names {
        match names.entry(&name.value) {
            Entry::Vacant(free) => drop(free.insert(name.location)),
            Entry::Occupied(first) => report.add(
                name.location,
                format!(
                    "two limits are called `{}`; the first on line {}",
                    name.value,
                    first.get().line
                ),
                "give one of them another name: state, metrics and messages go by it",
            ),
        }
    }
}

/// A group need not be declared, but one whose name is nearly that of a declared one is a slip.
fn check_group(
    policy: &Policy,
    group: Option<&crate::source::Located<Box<str>>>,
    report: &mut DiagnosticSink,
) {
    let Some(group) = group else { return };
    let declared = || policy.groups.iter().map(|group| &*group.name.value);
    if declared().any(|name| name == &*group.value) {
        return;
    }
    if let Some(meant) = nearest_name(&group.value, declared()) {
        report.add(
            group.location,
            format!("there is no group `{}`", group.value),
            format!("did you mean `{meant}`?"),
        );
    }
}

/// Templates that match the same paths under different names would make `route` keys depend on their order.
fn check_routes(policy: &Policy, report: &mut DiagnosticSink) {
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
    for (template, place) in listed.chain(matched) {
        let (first, at) = *shapes
            .entry(without_parameter_names(template))
            .or_insert((template, place));
        if first != template {
            report.add(
                place,
                format!(
                    "templates `{}` and `{}` match the same paths; the first on line {}",
                    first.0, template.0, at.line
                ),
                format!("write `{}` in both places", first.0),
            );
        }
    }
}

/// The template without its names.
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
