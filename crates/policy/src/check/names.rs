//! Names and numbers that must be different, and names that are probably slips.
//!
//! Must not know: what is named.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use crate::model::{Policy, Template, Test};
use crate::read::{Places, Report};
use crate::source::SourceLocation;
use crate::words::nearest;

pub(super) fn check(policy: &Policy, places: &Places, report: &mut Report) {
    names(places, report);
    let mut ids: HashMap<u16, (&str, SourceLocation)> = HashMap::new();
    for limit in &policy.limits {
        let name = &*limit.name.value;
        if let Some(id) = &limit.id {
            if let Some((other, first)) = ids.get(&id.value) {
                report.say(
                    id.place,
                    format!(
                        "limits `{other}` and `{name}` both have the id {}; the first on line {}",
                        id.value, first.line
                    ),
                    "give one of them another number: limits with one id would count together",
                );
            } else {
                ids.insert(id.value, (name, id.place));
            }
        }
        groups(policy, limit.group.as_ref(), report);
    }
    routes(policy, report);
}

fn names(places: &Places, report: &mut Report) {
    let mut names: HashMap<&str, SourceLocation> = HashMap::new();
    for name in &places.names {
        match names.entry(&name.value) {
            Entry::Vacant(free) => drop(free.insert(name.place)),
            Entry::Occupied(first) => report.say(
                name.place,
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
fn groups(policy: &Policy, group: Option<&crate::source::At<Box<str>>>, report: &mut Report) {
    let Some(group) = group else { return };
    let declared = || policy.groups.iter().map(|group| &*group.name.value);
    if declared().any(|name| name == &*group.value) {
        return;
    }
    if let Some(meant) = nearest(&group.value, declared()) {
        report.say(
            group.place,
            format!("there is no group `{}`", group.value),
            format!("did you mean `{meant}`?"),
        );
    }
}

/// Templates that match the same paths under different names would make `route` keys depend on their order.
fn routes(policy: &Policy, report: &mut Report) {
    let listed = policy
        .routes
        .iter()
        .map(|route| (&route.value, route.place));
    let matched = policy.limits.iter().flat_map(|limit| {
        limit.matching.conditions.iter().flat_map(|condition| {
            let templates = match &condition.value.test {
                Test::Route(templates) => templates.as_slice(),
                _ => &[],
            };
            templates.iter().map(|template| (template, condition.place))
        })
    });
    let mut shapes: HashMap<String, (&Template, SourceLocation)> = HashMap::new();
    for (template, place) in listed.chain(matched) {
        let (first, at) = *shapes.entry(shape(template)).or_insert((template, place));
        if first != template {
            report.say(
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
fn shape(template: &Template) -> String {
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
