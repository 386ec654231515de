//! Reads `cost` and `count`.
//!
//! Must not know: how costs are charged.

use serde_json::{Value as Json, json};
use tollgate_core::QuotaUnit;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::scalar::describe_node;
use super::tiers::canonical_value;
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{Cost, Count, StatusClass};
use crate::schema::{definition_ref, enumeration, object, object_with_values, one_or_list};
use crate::source::{SourceNode, SourceValue};

const FORMS: &str = "write `cost: 5`, `cost: { by: method, POST: 5, otherwise: 1 }`, `cost: { from: header.x-cost }`, `cost: { response: x-tokens-used }` or `cost: { response_body: bytes }`";

/// A cost while it is read. Each form uses some of the fields.
pub(crate) struct CostDraft {
    unit: QuotaUnit,
    attribute: Option<Attribute>,
    header: Option<Box<str>>,
    is_response_body: bool,
    otherwise: Option<u64>,
    at_least: Option<u64>,
    at_most: Option<u64>,
    estimate: Option<u64>,
}

/// The fields of a cost by the value of an attribute. All other names are values.
pub(crate) const BY_VALUE: [Field<CostDraft>; 2] = [
    Field::new(
        "by",
        FieldDefault::Required("method"),
        "The attribute whose value chooses the cost.",
        || definition_ref("attribute"),
        |reader, node, name, cost| {
            cost.attribute = reader.text_attribute(node, name).map(|at| at.value);
        },
    ),
    Field::new(
        "otherwise",
        FieldDefault::Value("1"),
        "The cost of any other value, or if the attribute is absent.",
        || definition_ref("number"),
        |reader, node, name, cost| cost.otherwise = reader.units(node, name, cost.unit),
    ),
];

/// The fields of a cost that an attribute contains.
pub(crate) const FROM_ATTRIBUTE: [Field<CostDraft>; 4] = [
    Field::new(
        "from",
        FieldDefault::Required("header.x-cost"),
        "The attribute with the cost.",
        || definition_ref("attribute"),
        |reader, node, name, cost| {
            cost.attribute = reader.text_attribute(node, name).map(|at| at.value);
        },
    ),
    Field::new(
        "at_least",
        FieldDefault::Value("1"),
        "The minimum cost.",
        || definition_ref("number"),
        |reader, node, name, cost| cost.at_least = reader.units(node, name, cost.unit),
    ),
    AT_MOST,
    Field::new(
        "otherwise",
        FieldDefault::Description("`at_least`"),
        "The cost if the attribute is not a number.",
        || definition_ref("number"),
        |reader, node, name, cost| cost.otherwise = reader.units(node, name, cost.unit),
    ),
];

/// The fields of a cost that the response contains.
pub(crate) const FROM_RESPONSE: [Field<CostDraft>; 3] = [
    Field::new(
        "response",
        FieldDefault::Required("x-tokens-used"),
        "The response header with the cost.",
        || json!({ "type": "string" }),
        |reader, node, name, cost| {
            cost.header = reader.parse(node, name, |text| {
                grammar::parse_header_name(text.strip_prefix("header.").unwrap_or(text))
            });
        },
    ),
    ESTIMATE,
    AT_MOST,
];

/// The fields of a cost by the bytes of the response's body.
pub(crate) const FROM_RESPONSE_BODY: [Field<CostDraft>; 3] = [
    Field::new(
        "response_body",
        FieldDefault::Required("bytes"),
        "`bytes`: the cost is the length of the response's body, known to transports that send it.",
        || enumeration(&BODY_UNITS),
        |reader, node, name, cost| {
            cost.is_response_body = reader.keyword(node, name, &BODY_UNITS).is_some();
        },
    ),
    ESTIMATE,
    AT_MOST,
];

/// What of a body is counted.
const BODY_UNITS: [(&str, ()); 1] = [("bytes", ())];

const ESTIMATE: Field<CostDraft> = Field::new(
    "estimate",
    FieldDefault::Value("1"),
    "The cost charged when the request arrives.",
    || definition_ref("number"),
    |reader, node, name, cost| cost.estimate = reader.units(node, name, cost.unit),
);

const AT_MOST: Field<CostDraft> = Field::new(
    "at_most",
    FieldDefault::None,
    "The maximum cost.",
    || definition_ref("number"),
    |reader, node, name, cost| cost.at_most = reader.units(node, name, cost.unit),
);

/// The fields of `count`.
pub(crate) const COUNT: [Field<Option<Vec<StatusClass>>>; 1] = [Field::new(
    "responses",
    FieldDefault::Required("[401, 5xx]"),
    "Statuses such as 401, or classes such as 4xx.",
    statuses_schema,
    |reader, node, _, classes| *classes = responses(reader, node),
)];

/// The keywords of `count`.
const COUNTS: [(&str, bool); 2] = [("requests", false), ("denials", true)];

/// The schema of a list of statuses.
pub(super) fn statuses_schema() -> Json {
    let whole = json!({ "type": "integer", "minimum": 100, "maximum": 599 });
    let class = json!({ "type": "string", "pattern": "^[1-5]([0-9]{2}|xx)$" });
    one_or_list(&json!({ "anyOf": [whole, class] }))
}

/// The schema of `cost`.
pub(crate) fn cost_schema() -> Json {
    json!({ "anyOf": [
        definition_ref("number"),
        object_with_values(field_specs(&BY_VALUE), &definition_ref("number")),
        object(field_specs(&FROM_ATTRIBUTE)),
        object(field_specs(&FROM_RESPONSE)),
        object(field_specs(&FROM_RESPONSE_BODY)),
    ] })
}

/// The schema of `count`.
pub(crate) fn count_schema() -> Json {
    json!({ "anyOf": [enumeration(&COUNTS), object(field_specs(&COUNT))] })
}

/// `cost`: a number, or a map with `by`, `from`, `response` or `response_body`.
pub(super) fn read_cost(
    reader: &mut TreeReader,
    node: &SourceNode,
    unit: QuotaUnit,
) -> Option<Cost> {
    if let SourceValue::Scalar { .. } = node.value {
        return reader.units(node, "cost", unit).map(Cost::Fixed);
    }
    let fields = FieldReader::open(reader, node, "`cost`", "cost: 5")?;
    let forms = ["by", "from", "response", "response_body"];
    if forms.iter().filter(|form| fields.has(form)).count() != 1 {
        reader.diagnostics.add(
            node.location,
            "`cost` needs exactly one of `by`, `from`, `response` and `response_body`",
            FORMS,
        );
        return None;
    }
    let draft = CostDraft {
        unit,
        attribute: None,
        header: None,
        is_response_body: false,
        otherwise: None,
        at_least: None,
        at_most: None,
        estimate: None,
    };
    if fields.has("by") {
        read_cost_by_value(reader, fields, draft)
    } else if fields.has("from") {
        read_cost_from_attribute(reader, fields, draft)
    } else if fields.has("response_body") {
        read_cost_from_response_body(reader, fields, draft)
    } else {
        read_cost_from_response(reader, fields, draft)
    }
}

fn read_cost_by_value(
    reader: &mut TreeReader,
    mut fields: FieldReader<'_>,
    mut draft: CostDraft,
) -> Option<Cost> {
    fields.read(reader, &BY_VALUE, &mut draft);
    let mut values = Vec::new();
    for entry in fields.unread_entries() {
        let cost = reader.units(&entry.value, &entry.name.value, draft.unit);
        let value = canonical_value(draft.attribute.as_ref(), &entry.name.value);
        values.extend(cost.map(|cost| (value, cost)));
    }
    if fields.unread_entries().next().is_none() {
        reader.diagnostics.add(
            fields.location,
            "`cost` has no values",
            "add the cost of at least one value: `POST: 5`",
        );
    }
    Some(Cost::ByValue {
        attribute: draft.attribute?,
        values,
        otherwise: draft.otherwise.unwrap_or(1),
    })
}

fn read_cost_from_attribute(
    reader: &mut TreeReader,
    mut fields: FieldReader<'_>,
    mut draft: CostDraft,
) -> Option<Cost> {
    fields.read(reader, &FROM_ATTRIBUTE, &mut draft);
    fields.finish(reader);
    let at_least = draft.at_least.unwrap_or(1);
    Some(Cost::Attribute {
        attribute: draft.attribute?,
        at_least,
        at_most: draft.at_most.unwrap_or(u64::MAX),
        otherwise: draft.otherwise.unwrap_or(at_least),
    })
}

fn read_cost_from_response(
    reader: &mut TreeReader,
    mut fields: FieldReader<'_>,
    mut draft: CostDraft,
) -> Option<Cost> {
    fields.read(reader, &FROM_RESPONSE, &mut draft);
    fields.finish(reader);
    Some(Cost::Response {
        header: draft.header?,
        estimate: draft.estimate.unwrap_or(1),
        at_most: draft.at_most.unwrap_or(u64::MAX),
    })
}

fn read_cost_from_response_body(
    reader: &mut TreeReader,
    mut fields: FieldReader<'_>,
    mut draft: CostDraft,
) -> Option<Cost> {
    fields.read(reader, &FROM_RESPONSE_BODY, &mut draft);
    fields.finish(reader);
    draft.is_response_body.then(|| Cost::ResponseBody {
        estimate: draft.estimate.unwrap_or(1),
        at_most: draft.at_most.unwrap_or(u64::MAX),
    })
}

impl TreeReader {
    /// Reads a number of units.
    pub(super) fn units(&mut self, node: &SourceNode, field: &str, unit: QuotaUnit) -> Option<u64> {
        self.parse(node, field, |text| grammar::parse_amount(text, unit))
    }
}

/// `count: requests`, `count: denials`, `count: { responses: [401, 5xx] }`
pub(super) fn read_count(reader: &mut TreeReader, node: &SourceNode) -> Option<Count> {
    if let SourceValue::Scalar { .. } = node.value {
        let denials = reader.keyword(node, "count", &COUNTS)?;
        return Some(if denials {
            Count::Denials
        } else {
            Count::Requests
        });
    }
    let mut fields =
        FieldReader::open(reader, node, "`count`", "count: { responses: [401, 5xx] }")?;
    let mut classes = None;
    fields.read(reader, &COUNT, &mut classes);
    fields.finish(reader);
    classes.map(Count::Responses)
}

fn responses(reader: &mut TreeReader, node: &SourceNode) -> Option<Vec<StatusClass>> {
    read_statuses(reader, node, "responses")
}

/// Statuses such as 401, or classes such as 5xx: one, or a list.
pub(super) fn read_statuses(
    reader: &mut TreeReader,
    node: &SourceNode,
    field: &str,
) -> Option<Vec<StatusClass>> {
    let nodes = match &node.value {
        SourceValue::List(nodes) if !nodes.is_empty() => nodes.as_slice(),
        SourceValue::Scalar { .. } => std::slice::from_ref(node),
        _ => {
            reader.diagnostics.add(
                node.location,
                format!(
                    "`{field}` must have statuses, found {}",
                    describe_node(node)
                ),
                "write them in brackets: `[401, 5xx]`",
            );
            return None;
        }
    };
    let classes: Vec<StatusClass> = nodes
        .iter()
        .filter_map(|node| reader.parse(node, field, grammar::parse_status_class))
        .collect();
    (classes.len() == nodes.len()).then_some(classes)
}
