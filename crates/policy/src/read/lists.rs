//! What stands beside the limits: named networks, groups, routes, exemptions and denials.
//!
//! Must not know: what stands in a limit.

use super::fields::Fields;
use super::matching::{conditions, networks};
use super::scalar::found;
use super::{Places, Reader};
use crate::model::{Apply, DenyRule, Group, Match, Template};
use crate::source::{At, Node, Value};
use crate::words;

/// `lists`: networks by name, to be used as `{ in: NAME }`.
pub(super) fn lists(reader: &mut Reader, node: &Node) {
    let Some(fields) = Fields::open(reader, node, "`lists`", "lists: { office: [10.0.0.0/8] }")
    else {
        return;
    };
    for entry in fields.entries {
        let name = reader.made(entry.name.place, "lists", words::name(&entry.name.value));
        let networks = match &entry.value.value {
            Value::List(nodes) if !nodes.is_empty() => networks(reader, nodes, &entry.name.value),
            Value::Scalar { .. } => networks(
                reader,
                std::slice::from_ref(&entry.value),
                &entry.name.value,
            ),
            _ => {
                reader.report.say(
                    entry.value.place,
                    format!(
                        "list `{}` must have networks, found {}",
                        entry.name.value,
                        found(&entry.value)
                    ),
                    "write them in brackets: `[10.0.0.0/8, \"2001:db8::/32\"]`",
                );
                Vec::new()
            }
        };
        // Even a list with a wrong network is known by its name, so that its uses are not reported too.
        if let Some(name) = name {
            reader.lists.push((name, networks));
        }
    }
}

/// `groups`: how the limits of each combine.
pub(super) fn groups(reader: &mut Reader, node: &Node) -> Vec<Group> {
    let mut groups = Vec::new();
    let Some(fields) = Fields::open(
        reader,
        node,
        "`groups`",
        "groups: { aws: { apply: narrowest } }",
    ) else {
        return groups;
    };
    let words = [("all", Apply::All), ("narrowest", Apply::Narrowest)];
    for entry in fields.entries {
        let name = reader.made(entry.name.place, "groups", words::name(&entry.name.value));
        let of = format!("group `{}`", entry.name.value);
        let Some(mut fields) = Fields::open(reader, &entry.value, of, "{ apply: narrowest }")
        else {
            continue;
        };
        let apply = fields
            .require(reader, "apply", "narrowest")
            .and_then(|node| reader.word(node, "apply", &words));
        fields.finish(reader);
        if let (Some(name), Some(apply)) = (name, apply) {
            groups.push(Group {
                name: At::new(name, entry.name.place),
                apply,
            });
        }
    }
    groups
}

/// `routes`: templates that no limit matches by.
pub(super) fn routes(reader: &mut Reader, node: &Node) -> Vec<At<Template>> {
    let mut routes: Vec<At<Template>> = Vec::new();
    for node in reader.list(node, "routes").unwrap_or_default() {
        if let Some(template) = reader.parse(node, "routes", words::template) {
            let route = At::new(template, node.place);
            if let Some(first) = routes.iter().find(|first| **first == route) {
                reader.report.say(
                    node.place,
                    format!(
                        "`routes` lists `{}` twice; first on line {}",
                        route.value.0, first.place.line
                    ),
                    "keep one of the two",
                );
            }
            routes.push(route);
        }
    }
    routes
}

/// `exempt`: conditions, under `match` or bare.
pub(super) fn exempt(reader: &mut Reader, node: &Node, places: &mut Places) -> Vec<Match> {
    let mut rules = Vec::new();
    for node in reader.list(node, "exempt").unwrap_or_default() {
        let before = reader.report.len();
        let matching = if has_match(node) {
            let Some(mut fields) = Fields::open(
                reader,
                node,
                "an `exempt` entry",
                "{ match: { ip: 10.0.0.0/8 } }",
            ) else {
                continue;
            };
            let matching = fields
                .take(reader, "match")
                .and_then(|node| conditions(reader, node));
            fields.finish(reader);
            matching
        } else {
            conditions(reader, node)
        };
        let Some(matching) = matching else { continue };
        if matching.conditions.is_empty() && reader.report.len() == before {
            reader.report.say(
                node.place,
                "an `exempt` entry without conditions exempts every request",
                "say which requests; to switch all limits off say `mode: off`",
            );
        }
        if reader.report.len() == before {
            rules.push(matching);
            places.exempt.push(node.place);
        }
    }
    rules
}

/// `deny`: conditions, with a status and a message, or bare.
pub(super) fn deny(reader: &mut Reader, node: &Node, places: &mut Places) -> Vec<DenyRule> {
    let mut rules = Vec::new();
    for node in reader.list(node, "deny").unwrap_or_default() {
        let before = reader.report.len();
        let Some(rule) = deny_rule(reader, node) else {
            continue;
        };
        if rule.matching.conditions.is_empty() && reader.report.len() == before {
            reader.report.say(
                node.place,
                "a `deny` entry without conditions refuses every request",
                "say which requests; a limit with `rate: 0/s` refuses everything too, and can be shadowed",
            );
        }
        if reader.report.len() == before {
            rules.push(rule);
            places.deny.push(node.place);
        }
    }
    rules
}

fn deny_rule(reader: &mut Reader, node: &Node) -> Option<DenyRule> {
    let mut rule = DenyRule {
        matching: Match::default(),
        status: 403,
        message: None,
    };
    if !has_match(node) {
        rule.matching = conditions(reader, node)?;
        return Some(rule);
    }
    let mut fields = Fields::open(
        reader,
        node,
        "a `deny` entry",
        "{ match: { ip: 10.0.0.0/8 }, status: 403 }",
    )?;
    let matching = fields
        .take(reader, "match")
        .and_then(|node| conditions(reader, node));
    if let Some(node) = fields.take(reader, "status") {
        rule.status = reader.status(node)?;
    }
    if let Some(node) = fields.take(reader, "message") {
        rule.message = reader.message(node);
    }
    fields.finish(reader);
    rule.matching = matching?;
    Some(rule)
}

/// No attribute is called `match`, so its name tells the long form from the bare one.
fn has_match(node: &Node) -> bool {
    matches!(&node.value, Value::Map(entries) if entries.iter().any(|entry| &*entry.name.value == "match"))
}
