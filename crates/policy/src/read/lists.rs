//! What stands beside the limits: named networks, groups, routes, exemptions and denials.
//!
//! Must not know: what stands in a limit.

use serde_json::json;

use super::field::{Absent, Field, put};
use super::fields::FieldReader;
use super::matching::{conditions, networks};
use super::scalar::found;
use super::{Places, Reader};
use crate::model::{Apply, DenyRule, Group, Match, Template};
use crate::schema::{enumeration, of};
use crate::source::{At, SourceNode, SourceValue};
use crate::words;

const APPLY: [(&str, Apply); 2] = [("all", Apply::All), ("narrowest", Apply::Narrowest)];

/// The fields of a group.
pub(crate) const GROUP: [Field<Option<Apply>>; 1] = [Field::new(
    "apply",
    Absent::Required("narrowest"),
    "`all` (the default), or `narrowest`: only the limit with the most conditions.",
    || enumeration(&APPLY),
    |reader, node, name, apply| *apply = reader.word(node, name, &APPLY),
)];

/// The fields of an `exempt` entry in its long form.
pub(crate) const EXEMPT: [Field<Option<Match>>; 1] = [Field::new(
    "match",
    Absent::Required("{ ip: 10.0.0.0/8 }"),
    "Which requests.",
    || of("match"),
    |reader, node, _, matching| *matching = conditions(reader, node),
)];

/// The fields of a `deny` entry in its long form.
pub(crate) const DENY: [Field<DenyDraft>; 3] = [
    Field::new(
        "match",
        Absent::Required("{ ip: 10.0.0.0/8 }"),
        "Which requests.",
        || of("match"),
        |reader, node, _, draft| draft.matching = conditions(reader, node),
    ),
    Field::new(
        "status",
        Absent::Default("403"),
        "The status of the answer (default 403).",
        || of("status"),
        |reader, node, _, draft| put(&mut draft.rule.status, reader.status(node)),
    ),
    Field::new(
        "message",
        Absent::Nothing,
        "The message of the answer.",
        || json!({ "type": "string" }),
        |reader, node, _, draft| draft.rule.message = reader.message(node),
    ),
];

/// A `deny` entry while it is read.
pub(crate) struct DenyDraft {
    rule: DenyRule,
    matching: Option<Match>,
}

/// `lists`: networks by name, to be used as `{ in: NAME }`.
pub(super) fn lists(reader: &mut Reader, node: &SourceNode) {
    let Some(fields) =
        FieldReader::open(reader, node, "`lists`", "lists: { office: [10.0.0.0/8] }")
    else {
        return;
    };
    for entry in fields.entries {
        let name = reader.made(entry.name.place, "lists", words::name(&entry.name.value));
        let networks = match &entry.value.value {
            SourceValue::List(nodes) if !nodes.is_empty() => {
                networks(reader, nodes, &entry.name.value)
            }
            SourceValue::Scalar { .. } => networks(
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
pub(super) fn groups(reader: &mut Reader, node: &SourceNode) -> Vec<Group> {
    let mut groups = Vec::new();
    let Some(fields) = FieldReader::open(
        reader,
        node,
        "`groups`",
        "groups: { aws: { apply: narrowest } }",
    ) else {
        return groups;
    };
    for entry in fields.entries {
        let name = reader.made(entry.name.place, "groups", words::name(&entry.name.value));
        let of = format!("group `{}`", entry.name.value);
        let Some(mut fields) = FieldReader::open(reader, &entry.value, of, "{ apply: narrowest }")
        else {
            continue;
        };
        let mut apply = None;
        fields.read(reader, &GROUP, &mut apply);
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
pub(super) fn routes(reader: &mut Reader, node: &SourceNode) -> Vec<At<Template>> {
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
pub(super) fn exempt(reader: &mut Reader, node: &SourceNode, places: &mut Places) -> Vec<Match> {
    let mut rules = Vec::new();
    for node in reader.list(node, "exempt").unwrap_or_default() {
        let before = reader.report.len();
        let matching = if has_match(node) {
            let Some(mut fields) = FieldReader::open(
                reader,
                node,
                "an `exempt` entry",
                "{ match: { ip: 10.0.0.0/8 } }",
            ) else {
                continue;
            };
            let mut matching = None;
            fields.read(reader, &EXEMPT, &mut matching);
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
pub(super) fn deny(reader: &mut Reader, node: &SourceNode, places: &mut Places) -> Vec<DenyRule> {
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

fn deny_rule(reader: &mut Reader, node: &SourceNode) -> Option<DenyRule> {
    let mut draft = DenyDraft {
        rule: DenyRule {
            matching: Match::default(),
            status: 403,
            message: None,
        },
        matching: None,
    };
    if !has_match(node) {
        draft.rule.matching = conditions(reader, node)?;
        return Some(draft.rule);
    }
    let mut fields = FieldReader::open(
        reader,
        node,
        "a `deny` entry",
        "{ match: { ip: 10.0.0.0/8 }, status: 403 }",
    )?;
    fields.read(reader, &DENY, &mut draft);
    fields.finish(reader);
    draft.rule.matching = draft.matching?;
    Some(draft.rule)
}

/// No attribute is called `match`, so its name tells the long form from the bare one.
fn has_match(node: &SourceNode) -> bool {
    matches!(&node.value, SourceValue::Map(entries) if entries.iter().any(|entry| &*entry.name.value == "match"))
}
