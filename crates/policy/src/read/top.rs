//! The outermost map: lists, groups, routes, exemptions, denials, limits, and what holds for all of them.
//!
//! Must not know: what stands in a limit.

use serde_json::{Value as Json, json};

use super::field::{Absent, Field, about, put};
use super::fields::FieldReader;
use super::scalar::found;
use super::{Places, Reader, limit, lists};
use crate::model::{Mode, Policy};
use crate::schema::{lax_object, list_of, map_of, object, of, one_or_list};
use crate::source::{SourceNode, SourceValue};
use crate::words;

/// What `mode` may say, of everything and of one limit.
pub(crate) const MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

/// As many limits as there can be numbers for them.
const MOST_LIMITS: usize = 60_000;

/// A policy while it is read.
#[derive(Default)]
pub(crate) struct PolicyDraft {
    policy: Policy,
    places: Places,
}

/// The fields of a policy.
pub(crate) const POLICY: [Field<PolicyDraft>; 9] = [
    Field::new(
        "lists",
        Absent::Nothing,
        "Named networks, for `ip: { in: NAME }`.",
        || map_of(&one_or_list(&of("network"))),
        |reader, node, _, _| lists::lists(reader, node),
    ),
    Field::new(
        "groups",
        Absent::Nothing,
        "How the limits of a group combine when several of them match.",
        || map_of(&lax_object(about(&lists::GROUP))),
        |reader, node, _, draft| draft.policy.groups = lists::groups(reader, node),
    ),
    Field::new(
        "routes",
        Absent::Nothing,
        "Route templates that no limit matches by, so that `route` can be a key for them too.",
        || list_of(&of("template")),
        |reader, node, _, draft| draft.policy.routes = lists::routes(reader, node),
    ),
    Field::new(
        "exempt",
        Absent::Nothing,
        "Requests that no limit applies to.",
        || list_of(&json!({ "anyOf": [object(about(&lists::EXEMPT)), of("match")] })),
        |reader, node, _, draft| {
            draft.policy.exempt = lists::exempt(reader, node, &mut draft.places);
        },
    ),
    Field::new(
        "deny",
        Absent::Nothing,
        "Requests that are refused without asking any limit.",
        || list_of(&json!({ "anyOf": [object(about(&lists::DENY)), of("match")] })),
        |reader, node, _, draft| draft.policy.deny = lists::deny(reader, node, &mut draft.places),
    ),
    Field::new(
        "mode",
        Absent::Default("enforce"),
        "Of everything at once: `enforce`, `shadow` (count and report only) or `off`. The strictest of this and a limit's own mode holds.",
        || of("mode"),
        |reader, node, name, draft| {
            put(&mut draft.policy.mode, reader.word(node, name, &MODES));
        },
    ),
    Field::new(
        "fleet",
        Absent::Nothing,
        "The instances that share the quotas.",
        || lax_object(about(&FLEET)),
        |reader, node, _, draft| draft.policy.nodes = fleet(reader, node),
    ),
    Field::new(
        "divergence_threshold",
        Absent::Default("2%"),
        "Above this share of differing decisions a candidate is advised against (default 2%).",
        || of("percent"),
        |reader, node, name, draft| {
            let share = reader.parse(node, name, words::percent);
            put(&mut draft.policy.divergence_threshold, share);
        },
    ),
    Field::new(
        "limits",
        Absent::Means("required, unless there is `deny`"),
        "The limits. All that match a request apply to it.",
        || list_of(&of("limit")),
        |reader, node, _, draft| limits(reader, node, draft),
    ),
];

/// The fields of `fleet`.
pub(crate) const FLEET: [Field<Option<u32>>; 1] = [Field::new(
    "nodes",
    Absent::Required("3"),
    "How many instances share the quotas, where nothing better is known.",
    || json!({ "type": "integer", "minimum": 1 }),
    |reader, node, name, nodes| {
        let number = reader.number(node, name, 1, 100_000);
        *nodes = number.and_then(|number| u32::try_from(number).ok());
    },
)];

/// The schema of a policy, without its title, id and dialect.
pub(crate) fn schema() -> Json {
    let editors = super::field::About {
        name: "$schema",
        absent: Absent::Nothing,
        doc: "The address of this schema, for editors.",
        schema: || json!({ "type": "string" }),
    };
    object(about(&POLICY).chain([editors]))
}

/// Reads everything that can be read. What could not is left out of the model and stands in the report.
pub(super) fn policy(reader: &mut Reader, node: &SourceNode) -> (Policy, Places) {
    let mut draft = PolicyDraft::default();
    let example = "limits: [{ name: everyone, rate: 100/s }]";
    let Some(mut fields) = FieldReader::open(reader, node, "a policy", example) else {
        return (draft.policy, draft.places);
    };
    fields.read(reader, &POLICY, &mut draft);
    if !fields.has("limits") && !fields.has("deny") {
        reader.report.say(
            node.place,
            "the policy has neither `limits` nor `deny`, so it would admit everything",
            "add `limits:` with at least one limit; to switch limits off say `mode: off`",
        );
    }
    fields.finish(reader);
    (draft.policy, draft.places)
}

fn limits(reader: &mut Reader, node: &SourceNode, draft: &mut PolicyDraft) {
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
        if let SourceValue::Map(entries) = &node.value {
            draft.places.add_name(entries);
        }
        let before = reader.report.len();
        let limit = limit::limit(reader, node);
        // A limit that was not read in full would only be complained about twice.
        if let (Some(limit), SourceValue::Map(entries)) = (limit, &node.value)
            && reader.report.len() == before
        {
            draft.policy.limits.push(limit);
            draft.places.add_limit(entries);
        }
    }
}

fn fleet(reader: &mut Reader, node: &SourceNode) -> Option<u32> {
    let mut fields = FieldReader::open(reader, node, "`fleet`", "fleet: { nodes: 3 }")?;
    let mut nodes = None;
    fields.read(reader, &FLEET, &mut nodes);
    fields.finish(reader);
    nodes
}

impl Reader {
    /// The values of a list.
    pub(super) fn list<'a>(
        &mut self,
        node: &'a SourceNode,
        field: &str,
    ) -> Option<&'a [SourceNode]> {
        if let SourceValue::List(nodes) = &node.value {
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
