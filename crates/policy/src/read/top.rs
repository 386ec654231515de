//! The outermost map: lists, groups, routes, exemptions, denials, limits, and what holds for all of them.
//!
//! Must not know: what stands in a limit.

use super::fields::Fields;
use super::scalar::found;
use super::{Places, Reader, limit, lists};
use crate::model::{Mode, Policy};
use crate::source::{Node, Value};
use crate::words;

/// What `mode` may say, of everything and of one limit.
pub(super) const MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

/// As many limits as there can be numbers for them.
const MOST_LIMITS: usize = 60_000;

/// Reads everything that can be read. What could not is left out of the model and stands in the report.
pub(super) fn policy(reader: &mut Reader, node: &Node) -> (Policy, Places) {
    let mut policy = Policy::default();
    let mut places = Places::default();
    let example = "limits: [{ name: everyone, rate: 100/s }]";
    let Some(mut fields) = Fields::open(reader, node, "a policy", example) else {
        return (policy, places);
    };
    if let Some(node) = fields.take(reader, "lists") {
        lists::lists(reader, node);
    }
    if let Some(node) = fields.take(reader, "groups") {
        policy.groups = lists::groups(reader, node);
    }
    if let Some(node) = fields.take(reader, "routes") {
        policy.routes = lists::routes(reader, node);
    }
    if let Some(node) = fields.take(reader, "exempt") {
        policy.exempt = lists::exempt(reader, node, &mut places);
    }
    if let Some(node) = fields.take(reader, "deny") {
        policy.deny = lists::deny(reader, node, &mut places);
    }
    if let Some(mode) = fields.take(reader, "mode") {
        policy.mode = reader.word(mode, "mode", &MODES).unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "fleet") {
        policy.nodes = fleet(reader, node);
    }
    if let Some(node) = fields.take(reader, "divergence_threshold") {
        policy.divergence_threshold = reader
            .parse(node, "divergence_threshold", words::percent)
            .unwrap_or(Policy::DIVERGENCE_THRESHOLD);
    }
    if let Some(node) = fields.take(reader, "limits") {
        limits(reader, node, &mut policy, &mut places);
    } else if !fields.has("limits") && !fields.has("deny") {
        reader.report.say(
            node.place,
            "the policy has neither `limits` nor `deny`, so it would admit everything",
            "add `limits:` with at least one limit; to switch limits off say `mode: off`",
        );
    }
    fields.finish(reader);
    (policy, places)
}

fn limits(reader: &mut Reader, node: &Node, policy: &mut Policy, places: &mut Places) {
    let Some(nodes) = reader.list(node, "limits") else {
        return;
    };
    if nodes.len() > MOST_LIMITS {
        reader.report.say(
            node.place,
            format!("`limits` has {} limits", nodes.len()),
            format!(
                "a policy has at most {MOST_LIMITS}; tiers and overrides make one limit of many"
            ),
        );
        return;
    }
    for node in nodes {
        if let Value::Map(entries) = &node.value {
            places.add_name(entries);
        }
        let before = reader.report.len();
        let limit = limit::limit(reader, node);
        // A limit that was not read in full would only be complained about twice.
        if let (Some(limit), Value::Map(entries)) = (limit, &node.value)
            && reader.report.len() == before
        {
            policy.limits.push(limit);
            places.add_limit(entries);
        }
    }
}

fn fleet(reader: &mut Reader, node: &Node) -> Option<u32> {
    let mut fields = Fields::open(reader, node, "`fleet`", "fleet: { nodes: 3 }")?;
    let nodes = fields
        .require(reader, "nodes", "3")
        .and_then(|node| reader.number(node, "nodes", 1, 100_000));
    fields.finish(reader);
    u32::try_from(nodes?).ok()
}

impl Reader {
    /// The values of a list.
    pub(super) fn list<'a>(&mut self, node: &'a Node, field: &str) -> Option<&'a [Node]> {
        if let Value::List(nodes) = &node.value {
            return Some(nodes);
        }
        self.report.say(
            node.place,
            format!("`{field}` must be a list, found {}", found(node)),
            "begin each of its entries with `- `, or write them in brackets",
        );
        None
    }
}
