//! Reads lists of networks, groups, routes, exemptions and denials.
//!
//! Must not know: the fields of a limit.

use serde_json::json;

use super::condition_values::read_networks;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, set_if_some};
use super::matching::read_match;
use super::scalar::describe_node;
use super::{FieldLocations, TreeReader};
use crate::grammar;
use crate::model::{DenyRule, Group, GroupSelection, Match, Template};
use crate::schema::{definition_ref, enumeration};
use crate::source::{Located, SourceNode, SourceValue};

const APPLY: [(&str, GroupSelection); 2] = [
    ("all", GroupSelection::All),
    ("narrowest", GroupSelection::Narrowest),
];

/// The fields of a group.
pub(crate) const GROUP: [Field<Option<GroupSelection>>; 1] = [Field::new(
    "apply",
    FieldDefault::Required("narrowest"),
    "`all` (the default), or `narrowest`: only the limit with the most conditions.",
    || enumeration(&APPLY),
    |reader, node, name, apply| *apply = reader.keyword(node, name, &APPLY),
)];

/// The fields of an `exempt` entry in its long form.
pub(crate) const EXEMPT: [Field<Option<Match>>; 1] = [Field::new(
    "match",
    FieldDefault::Required("{ ip: 10.0.0.0/8 }"),
    "Which requests.",
    || definition_ref("match"),
    |reader, node, _, matching| *matching = read_match(reader, node),
)];

/// The fields of a `deny` entry in its long form.
pub(crate) const DENY: [Field<DenyDraft>; 3] = [
    Field::new(
        "match",
        FieldDefault::Required("{ ip: 10.0.0.0/8 }"),
        "Which requests.",
        || definition_ref("match"),
        |reader, node, _, draft| draft.matching = read_match(reader, node),
    ),
    Field::new(
        "status",
        FieldDefault::Value("403"),
        "The status of the answer (default 403).",
        || definition_ref("status"),
        |reader, node, _, draft| set_if_some(&mut draft.rule.status, reader.status(node)),
    ),
    Field::new(
        "message",
        FieldDefault::None,
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

/// `lists`: named networks for `{ in: NAME }`.
pub(super) fn read_lists(reader: &mut TreeReader, node: &SourceNode) {
    let Some(fields) =
        FieldReader::open(reader, node, "`lists`", "lists: { office: [10.0.0.0/8] }")
    else {
        return;
    };
    for entry in fields.entries {
        let name = reader.ok_or_report(
            entry.name.location,
            "lists",
            grammar::parse_name(&entry.name.value),
        );
        let networks = match &entry.value.value {
            SourceValue::List(nodes) if !nodes.is_empty() => {
                read_networks(reader, nodes, &entry.name.value)
            }
            SourceValue::Scalar { .. } => read_networks(
                reader,
                std::slice::from_ref(&entry.value),
                &entry.name.value,
            ),
            _ => {
                reader.diagnostics.add(
                    entry.value.location,
                    format!(
                        "list `{}` must have networks, found {}",
                        entry.name.value,
                        describe_node(&entry.value)
                    ),
                    "write them in brackets: `[10.0.0.0/8, \"2001:db8::/32\"]`",
                );
                Vec::new()
            }
        };
        // An invalid list is still known by its name, so that its uses are not reported too.
        if let Some(name) = name {
            reader.lists.push((name, networks));
        }
    }
}

/// `groups`: how the limits of each group combine.
pub(super) fn read_groups(reader: &mut TreeReader, node: &SourceNode) -> Vec<Group> {
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
        let name = reader.ok_or_report(
            entry.name.location,
            "groups",
            grammar::parse_name(&entry.name.value),
        );
        let subject = format!("group `{}`", entry.name.value);
        let Some(mut fields) =
            FieldReader::open(reader, &entry.value, subject, "{ apply: narrowest }")
        else {
            continue;
        };
        let mut apply = None;
        fields.read(reader, &GROUP, &mut apply);
        fields.finish(reader);
        if let (Some(name), Some(apply)) = (name, apply) {
            groups.push(Group {
                name: Located::new(name, entry.name.location),
                apply,
            });
        }
    }
    groups
}

/// `routes`: route templates that no limit matches by.
pub(super) fn read_routes(reader: &mut TreeReader, node: &SourceNode) -> Vec<Located<Template>> {
    let mut routes: Vec<Located<Template>> = Vec::new();
    for node in reader.list(node, "routes").unwrap_or_default() {
        if let Some(template) = reader.parse(node, "routes", grammar::parse_template) {
            let route = Located::new(template, node.location);
            if let Some(first) = routes.iter().find(|first| **first == route) {
                reader.diagnostics.add(
                    node.location,
                    format!(
                        "`routes` lists `{}` twice; first on line {}",
                        route.value.0, first.location.line
                    ),
                    "keep one of the two",
                );
            }
            routes.push(route);
        }
    }
    routes
}

/// `exempt`: conditions, directly or under `match`.
pub(super) fn read_exempt(
    reader: &mut TreeReader,
    node: &SourceNode,
    locations: &mut FieldLocations,
) -> Vec<Match> {
    let mut rules = Vec::new();
    for node in reader.list(node, "exempt").unwrap_or_default() {
        let before = reader.diagnostics.len();
        let matching = if is_long_form(node) {
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
            read_match(reader, node)
        };
        let Some(matching) = matching else { continue };
        if matching.conditions.is_empty() && reader.diagnostics.len() == before {
            reader.diagnostics.add(
                node.location,
                "an `exempt` entry without conditions exempts every request",
                "add conditions; to switch all limits off write `mode: off`",
            );
        }
        if reader.diagnostics.len() == before {
            rules.push(matching);
            locations.exempt.push(node.location);
        }
    }
    rules
}

/// `deny`: conditions, directly or under `match` with a status and a message.
pub(super) fn read_deny(
    reader: &mut TreeReader,
    node: &SourceNode,
    locations: &mut FieldLocations,
) -> Vec<DenyRule> {
    let mut rules = Vec::new();
    for node in reader.list(node, "deny").unwrap_or_default() {
        let before = reader.diagnostics.len();
        let Some(rule) = read_deny_rule(reader, node) else {
            continue;
        };
        if rule.matching.conditions.is_empty() && reader.diagnostics.len() == before {
            reader.diagnostics.add(
                node.location,
                "a `deny` entry without conditions refuses every request",
                "add conditions; to refuse everything use a limit with `rate: 0/s`, which supports shadow mode",
            );
        }
        if reader.diagnostics.len() == before {
            rules.push(rule);
            locations.deny.push(node.location);
        }
    }
    rules
}

fn read_deny_rule(reader: &mut TreeReader, node: &SourceNode) -> Option<DenyRule> {
    let mut draft = DenyDraft {
        rule: DenyRule {
            matching: Match::default(),
            status: 403,
            message: None,
        },
        matching: None,
    };
    if !is_long_form(node) {
        draft.rule.matching = read_match(reader, node)?;
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

/// No attribute is named `match`, so this name identifies the long form.
fn is_long_form(node: &SourceNode) -> bool {
    matches!(&node.value, SourceValue::Map(entries) if entries.iter().any(|entry| &*entry.name.value == "match"))
}
