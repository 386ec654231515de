//! Reads priority classes and the mechanisms against overload.
//!
//! Must not know: how load is measured.

use serde_json::json;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, set_if_some};
use super::matching::read_match;
use super::policy::MODES;
use crate::attributes::Attribute;
use crate::compile::attributes_read::match_attributes;
use crate::grammar;
use crate::model::{Match, Mode, OverloadSpec, PriorityClassSpec, RetrySource};
use crate::schema::definition_ref;
use crate::source::{Located, SourceNode};

/// The fields of an entry of `priorities`.
pub(crate) const PRIORITY: [Field<PriorityDraft>; 2] = [
    Field::new(
        "name",
        FieldDefault::Required("critical"),
        "The name in metrics and refusals.",
        || json!({ "type": "string" }),
        |reader, node, name, draft| {
            let text = reader.parse(node, name, grammar::parse_name);
            draft.name = text.map(|text| Located::new(text, node.location));
        },
    ),
    Field::new(
        "match",
        FieldDefault::Description("all requests that no other class matches"),
        "Which requests. Of several classes that match, the first counts. A path that servers read differently is never above the class without `match`.",
        || definition_ref("match"),
        |reader, node, _, draft| draft.matching = read_match(reader, node),
    ),
];

/// The fields of `overload`.
pub(crate) const OVERLOAD: [Field<OverloadDraft>; 9] = [
    Field::new(
        "adaptive_concurrency",
        FieldDefault::Value("off"),
        "The adaptive concurrency limit: it learns how many requests the work behind can do at a time. Requests above it wait a short time, by class, and are then shed. `enforce`, `shadow` or `off`.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(
                &mut draft.spec.adaptive_concurrency,
                reader.keyword(node, name, &MODES),
            );
        },
    ),
    Field::new(
        "utilization",
        FieldDefault::Value("off"),
        "Sheds classes from the last one while requests in flight, the delay of the runtime or the processor time near saturation. `enforce`, `shadow` or `off`.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(
                &mut draft.spec.utilization,
                reader.keyword(node, name, &MODES),
            );
        },
    ),
    Field::new(
        "reserve",
        FieldDefault::Value("off"),
        "Keeps a share of the concurrency limit for the first class; in a fleet, of the limits of all nodes. `enforce`, `shadow` or `off`.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(&mut draft.spec.reserve, reader.keyword(node, name, &MODES));
        },
    ),
    Field::new(
        "reserved_share",
        FieldDefault::Value("20%"),
        "The share that `reserve` keeps.",
        || definition_ref("percent"),
        |reader, node, name, draft| {
            let share = reader.parse(node, name, grammar::parse_percent);
            set_if_some(&mut draft.spec.reserved_share, share);
        },
    ),
    Field::new(
        "retries",
        FieldDefault::Value("off"),
        "Sheds retries of authenticated clients above a share of their first tries. Needs `retry_client`. `enforce`, `shadow` or `off`.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(&mut draft.spec.retries, reader.keyword(node, name, &MODES));
        },
    ),
    Field::new(
        "retry_share",
        FieldDefault::Value("10%"),
        "The retries that `retries` admits, as a share of the first tries.",
        || definition_ref("percent"),
        |reader, node, name, draft| {
            let share = reader.parse(node, name, grammar::parse_percent);
            set_if_some(&mut draft.spec.retry_share, share);
        },
    ),
    Field::new(
        "retry_header",
        FieldDefault::Value(RetrySource::HEADER),
        "The header with the number of the attempt. The first try has 1 or no such header.",
        || json!({ "type": "string" }),
        |reader, node, name, draft| {
            let header = reader.parse(node, name, grammar::parse_header_name);
            let header = header.map(|header| Attribute::Header(header.to_ascii_lowercase().into()));
            set_if_some(&mut draft.retries.header, header);
        },
    ),
    Field::new(
        "retry_client",
        FieldDefault::Description("no client is authenticated"),
        "What an authenticated client has: a claim of a verified token, or an extension of the program. `retry_header` of other clients is not read.",
        || json!({ "type": "string" }),
        |reader, node, name, draft| draft.retries.client = read_retry_client(reader, node, name),
    ),
    Field::new(
        "credits",
        FieldDefault::Value("off"),
        "Tells each client (by its address, IPv6 by /64) in the rate limit fields, as `overload:credits`, how much it may send soon. They are sent once the capacity was found. `enforce` sends them, `shadow` only counts them. `enforce`, `shadow` or `off`.",
        || definition_ref("mode"),
        |reader, node, name, draft| {
            set_if_some(&mut draft.spec.credits, reader.keyword(node, name, &MODES));
        },
    ),
];

/// `overload` while it is read.
#[derive(Default)]
pub(crate) struct OverloadDraft {
    pub(super) spec: OverloadSpec,
    pub(super) retries: RetrySource,
}

/// An entry of `priorities` while it is read.
#[derive(Default)]
pub(crate) struct PriorityDraft {
    name: Option<Located<Box<str>>>,
    matching: Option<Match>,
}

/// `priorities`: the classes, the most important first.
pub(super) fn read_priorities(
    reader: &mut TreeReader,
    node: &SourceNode,
) -> Vec<PriorityClassSpec> {
    let mut classes: Vec<PriorityClassSpec> = Vec::new();
    let Some(nodes) = reader.list(node, "priorities") else {
        return classes;
    };
    if nodes.is_empty() {
        reader.diagnostics.add(
            node.location,
            "`priorities` is empty, so requests would have no class",
            "add `- name: default`, or leave `priorities` out: then all requests have one class",
        );
    }
    if nodes.len() > PriorityClassSpec::MAX {
        reader.diagnostics.add(
            node.location,
            format!("`priorities` has {} classes", nodes.len()),
            format!(
                "a policy has at most {}: critical, default and sheddable are enough for most",
                PriorityClassSpec::MAX
            ),
        );
        return classes;
    }
    for node in nodes {
        let example = "{ name: critical, match: { route: /v1/charges } }";
        let Some(mut fields) = FieldReader::open(reader, node, "a priority class", example) else {
            continue;
        };
        let mut draft = PriorityDraft::default();
        fields.read(reader, &PRIORITY, &mut draft);
        let (has_match, has_name) = (fields.has("match"), fields.has("name"));
        fields.finish(reader);
        if !has_name {
            continue;
        }
        let (Some(name), true) = (draft.name, draft.matching.is_some() || !has_match) else {
            continue;
        };
        let class = PriorityClassSpec {
            name,
            matching: draft.matching,
        };
        report_conflicts(reader, &classes, &class, node);
        classes.push(class);
    }
    let is_default_missing = classes.iter().all(|class| class.matching.is_some());
    if is_default_missing && !classes.is_empty() {
        reader.diagnostics.add(
            node.location,
            "`priorities` has no class without `match`, so some requests would have no class",
            "add `- name: default` at its place in the order",
        );
    }
    classes
}

/// Reports a class that repeats another, or whose condition cannot be known in time.
fn report_conflicts(
    reader: &mut TreeReader,
    earlier: &[PriorityClassSpec],
    class: &PriorityClassSpec,
    node: &SourceNode,
) {
    if earlier.iter().any(|other| other.name == class.name) {
        reader.diagnostics.add(
            class.name.location,
            format!("`priorities` has `{}` twice", class.name.value),
            "give each class its own name",
        );
    }
    let default = earlier.iter().find(|other| other.matching.is_none());
    if let (Some(default), None) = (default, &class.matching) {
        reader.diagnostics.add(
            node.location,
            format!(
                "`{}` and `{}` both have no `match`, so both would be the class of all other requests",
                default.name.value, class.name.value
            ),
            "add a `match` to one of them",
        );
    }
    let attributes = class.matching.iter().flat_map(match_attributes);
    let claim = attributes
        .into_iter()
        .find(|attribute| matches!(attribute, Attribute::Claim(_)));
    if let Some(claim) = claim {
        reader.diagnostics.add(
            node.location,
            format!("a priority class cannot depend on `{claim}`"),
            "claims are verified after shedding, because verifying is work; match by route or header",
        );
    }
}

/// The attribute of authenticated clients. Attributes that clients choose are reported.
fn read_retry_client(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
) -> Option<Located<Attribute>> {
    let client = reader.attribute(node, field)?;
    if matches!(client.value, Attribute::Claim(_) | Attribute::Extension(_)) {
        return Some(client);
    }
    reader.diagnostics.add(
        node.location,
        format!(
            "`{field}` cannot be `{}`, because any client can send it",
            client.value
        ),
        "name a claim of a verified token such as `claim.sub`, or an extension of the program",
    );
    None
}

/// `overload`: which mechanisms shed.
pub(super) fn read_overload(reader: &mut TreeReader, node: &SourceNode) -> OverloadDraft {
    let mut draft = OverloadDraft::default();
    let example = "overload: { adaptive_concurrency: shadow }";
    if let Some(mut fields) = FieldReader::open(reader, node, "`overload`", example) {
        fields.read(reader, &OVERLOAD, &mut draft);
        let has_client = fields.has("retry_client");
        fields.finish(reader);
        if draft.spec.retries != Mode::Off && !has_client {
            reader.diagnostics.add(
                node.location,
                "`retries` needs `retry_client`, because any client can call a request a retry",
                "add `retry_client: claim.sub`, with a claim that a limit reads",
            );
        }
    }
    draft
}
