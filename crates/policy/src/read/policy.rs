//! Reads the root map of a policy.
//!
//! Must not know: the fields of a limit.

use serde_json::{Value as Json, json};

use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use super::scalar::describe_node;
use super::{FieldLocations, TreeReader, gateway, jwt, limit, lists, overload, paths, preflights};
use crate::grammar;
use crate::model::{Mode, Policy};
use crate::schema::{
    definition_ref, enumeration, lax_object, list_of, map_of, non_empty_list_of, object,
    one_or_list,
};
use crate::source::{SourceNode, SourceValue};

/// The values of `mode`, of a policy and of a limit.
pub(crate) const MODES: [(&str, Mode); 3] = [
    ("enforce", Mode::Enforce),
    ("shadow", Mode::Shadow),
    ("off", Mode::Off),
];

/// The maximum number of limits, which is the number of ids.
const MAX_LIMITS: usize = 60_000;

/// The value of `limits` that says that there are to be none. An empty list is more often a mistake.
const NO_LIMITS: &str = "none";

/// A policy while it is read.
#[derive(Default)]
pub(crate) struct PolicyDraft {
    policy: Policy,
    locations: FieldLocations,
}

/// The fields of a policy.
pub(crate) const POLICY: [Field<PolicyDraft>; 16] = [
    Field::new(
        "lists",
        FieldDefault::None,
        "Named networks, for `ip: { in: NAME }`.",
        || map_of(&one_or_list(&definition_ref("network"))),
        |reader, node, _, _| lists::read_lists(reader, node),
    ),
    Field::new(
        "groups",
        FieldDefault::None,
        "How the limits of a group combine when several of them match.",
        || map_of(&lax_object(field_specs(&lists::GROUP))),
        |reader, node, _, draft| draft.policy.groups = lists::read_groups(reader, node),
    ),
    Field::new(
        "routes",
        FieldDefault::None,
        "Route templates that no limit matches by, so that `route` can be a key for them too.",
        || list_of(&definition_ref("template")),
        |reader, node, _, draft| draft.policy.routes = lists::read_routes(reader, node),
    ),
    Field::new(
        "exempt",
        FieldDefault::None,
        "Requests that no limit applies to.",
        || {
            list_of(
                &json!({ "anyOf": [object(field_specs(&lists::EXEMPT)), definition_ref("match")] }),
            )
        },
        |reader, node, _, draft| {
            draft.policy.exempt = lists::read_exempt(reader, node, &mut draft.locations);
        },
    ),
    Field::new(
        "deny",
        FieldDefault::None,
        "Requests that are refused before any limit.",
        || {
            list_of(
                &json!({ "anyOf": [object(field_specs(&lists::DENY)), definition_ref("match")] }),
            )
        },
        |reader, node, _, draft| {
            draft.policy.deny = lists::read_deny(reader, node, &mut draft.locations);
        },
    ),
    Field::new(
        "paths",
        FieldDefault::None,
        "How the servers behind read paths.",
        || lax_object(field_specs(&paths::PATHS)),
        |reader, node, _, draft| draft.policy.paths = paths::read_paths(reader, node),
    ),
    Field::new(
        "duplicates",
        FieldDefault::Description("`refused` for each"),
        "Which value counts if a client sends a header, a cookie or a query parameter more than once with different values: `first`, `last`, `joined`, or `refused` (the request gets 400).",
        || map_of(&enumeration(&paths::DUPLICATES)),
        |reader, node, _, draft| draft.policy.duplicates = paths::read_duplicates(reader, node),
    ),
    Field::new(
        "jwt",
        FieldDefault::None,
        "Which tokens are accepted, so that `claim.NAME` has values.",
        || lax_object(field_specs(&jwt::JWT)),
        |reader, node, _, draft| draft.policy.jwt = jwt::read_jwt(reader, node),
    ),
    Field::new(
        "preflights",
        FieldDefault::Value("6000/min"),
        "The quota of each address for CORS preflights, which are charged to no other limit. `none` charges them like other requests.",
        preflights::preflights_schema,
        |reader, node, name, draft| {
            draft.policy.preflights = preflights::read_preflights(reader, node, name);
        },
    ),
    Field::new(
        "mode",
        FieldDefault::Value("enforce"),
        "The mode of the whole policy: `enforce`, `shadow` (count and report only) or `off`. The more permissive of this and a limit's own mode applies.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(&mut draft.policy.mode, reader.keyword(node, name, &MODES));
        },
    ),
    Field::new(
        "fleet",
        FieldDefault::None,
        "The instances that share the quotas.",
        || lax_object(field_specs(&FLEET)),
        |reader, node, _, draft| draft.policy.nodes = read_fleet(reader, node),
    ),
    Field::new(
        "divergence_threshold",
        FieldDefault::Value("2%"),
        "A candidate with a higher percentage of differing decisions is not recommended (default 2%).",
        || definition_ref("percent"),
        |reader, node, name, draft| {
            let share = reader.parse(node, name, grammar::parse_percent);
            set_if_some(&mut draft.policy.divergence_threshold, share);
        },
    ),
    Field::new(
        "gateway",
        FieldDefault::None,
        "The upstreams behind the gateway listener, and which requests go to them.",
        || object(field_specs(&gateway::GATEWAY)),
        |reader, node, _, draft| draft.policy.gateway = gateway::read_gateway(reader, node),
    ),
    Field::new(
        "priorities",
        FieldDefault::Description("one class"),
        "The priority classes of requests, the most important first; at most 8. The last ones are shed first.",
        || non_empty_list_of(&object(field_specs(&overload::PRIORITY))),
        |reader, node, _, draft| draft.policy.priorities = overload::read_priorities(reader, node),
    ),
    Field::new(
        "overload",
        FieldDefault::None,
        "Which mechanisms shed requests while the work behind is overloaded. Shed requests get 503, never 429.",
        || lax_object(field_specs(&overload::OVERLOAD)),
        |reader, node, _, draft| {
            let overload = overload::read_overload(reader, node);
            (draft.policy.overload, draft.policy.retries) = (overload.spec, overload.retries);
        },
    ),
    Field::new(
        "limits",
        FieldDefault::Description("required, unless there is `deny`"),
        "The limits. All that match a request apply to it. `none` if there are to be none.",
        || json!({ "anyOf": [non_empty_list_of(&definition_ref("limit")), { "const": NO_LIMITS }] }),
        |reader, node, _, draft| read_limits(reader, node, draft),
    ),
];

/// The fields of `fleet`.
pub(crate) const FLEET: [Field<Option<u32>>; 1] = [Field::new(
    "nodes",
    FieldDefault::Required("3"),
    "The number of instances that share the quotas, if the fleet does not know it.",
    || json!({ "type": "integer", "minimum": 1 }),
    |reader, node, name, nodes| {
        let number = reader.number(node, name, 1, 100_000);
        *nodes = number.and_then(|number| u32::try_from(number).ok());
    },
)];

/// The schema of a policy, without its title, id and dialect.
pub(crate) fn schema() -> Json {
    let editors = super::field_spec::FieldSpec {
        name: "$schema",
        default: FieldDefault::None,
        doc: "The address of this schema, for editors.",
        schema: || json!({ "type": "string" }),
    };
    object(field_specs(&POLICY).chain([editors]))
}

/// Reads the whole policy. Invalid parts are reported and left out of the model.
pub(super) fn read_root(reader: &mut TreeReader, node: &SourceNode) -> (Policy, FieldLocations) {
    let mut draft = PolicyDraft::default();
    let example = "limits: [{ name: everyone, rate: 100/s }]";
    let Some(mut fields) = FieldReader::open(reader, node, "a policy", example) else {
        return (draft.policy, draft.locations);
    };
    fields.read(reader, &POLICY, &mut draft);
    if !fields.has("limits") && !fields.has("deny") {
        reader.diagnostics.add(
            node.location,
            "the policy has neither `limits` nor `deny`, so it would admit everything",
            "add `limits:` with at least one limit; to switch limits off write `mode: off`",
        );
    }
    fields.finish(reader);
    (draft.policy, draft.locations)
}

fn read_limits(reader: &mut TreeReader, node: &SourceNode, draft: &mut PolicyDraft) {
    if matches!(&node.value, SourceValue::Scalar { text, .. } if &**text == NO_LIMITS) {
        return;
    }
    let Some(nodes) = reader.list(node, "limits") else {
        return;
    };
    if nodes.is_empty() {
        reader.diagnostics.add(
            node.location,
            "`limits` is empty, so the policy would limit nothing",
            "add at least one limit, or write `limits: none` if that is meant",
        );
    }
    if nodes.len() > MAX_LIMITS {
        reader.diagnostics.add(
            node.location,
            format!("`limits` has {} limits", nodes.len()),
            format!(
                "a policy has at most {MAX_LIMITS}; use tiers and overrides instead of many limits"
            ),
        );
        return;
    }
    for node in nodes {
        if let SourceValue::Map(entries) = &node.value {
            draft.locations.add_name(entries);
        }
        let before = reader.diagnostics.len();
        let limit = limit::read_limit(reader, node);
        // An incomplete limit would be reported twice.
        if let (Some(limit), SourceValue::Map(entries)) = (limit, &node.value)
            && reader.diagnostics.len() == before
        {
            draft.policy.limits.push(limit);
            draft.locations.add_limit(entries);
        }
    }
}

fn read_fleet(reader: &mut TreeReader, node: &SourceNode) -> Option<u32> {
    let mut fields = FieldReader::open(reader, node, "`fleet`", "fleet: { nodes: 3 }")?;
    let mut nodes = None;
    fields.read(reader, &FLEET, &mut nodes);
    fields.finish(reader);
    nodes
}

impl TreeReader {
    /// Reads a list.
    pub(super) fn list<'a>(
        &mut self,
        node: &'a SourceNode,
        field: &str,
    ) -> Option<&'a [SourceNode]> {
        if let SourceValue::List(nodes) = &node.value {
            return Some(nodes);
        }
        self.diagnostics.add(
            node.location,
            format!("`{field}` must be a list, found {}", describe_node(node)),
            "begin each of its entries with `- `, or write them in brackets",
        );
        None
    }
}
