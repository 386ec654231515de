//! Functions that build schemas, and the shared definitions.
//!
//! The patterns are wide: they catch texts of the wrong kind, and the reader explains other mistakes. Must not know:
//! fields of limits.

use serde_json::{Map, Value, json};

use crate::read::{FieldDefault, FieldSpec, MODES, test_schema};

/// A map with only these fields.
pub(crate) fn object(fields: impl Iterator<Item = FieldSpec>) -> Value {
    map(fields, &json!(false), true)
}

/// A map with only these fields, none of which the schema requires.
pub(crate) fn lax_object(fields: impl Iterator<Item = FieldSpec>) -> Value {
    map(fields, &json!(false), false)
}

/// A map with these fields, in which every other name has a value of this schema.
pub(crate) fn object_with_values(fields: impl Iterator<Item = FieldSpec>, values: &Value) -> Value {
    map(fields, values, true)
}

fn map(fields: impl Iterator<Item = FieldSpec>, others: &Value, is_strict: bool) -> Value {
    let mut properties = Map::new();
    let mut required = Vec::new();
    for field in fields {
        let schema = with_description(&(field.schema)(), field.doc);
        properties.insert(field.name.to_owned(), schema);
        if is_strict && matches!(field.default, FieldDefault::Required(_)) {
            required.push(field.name);
        }
    }
    let mut map = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": others,
    });
    if let (Some(map), false) = (map.as_object_mut(), required.is_empty()) {
        map.insert("required".into(), json!(required));
    }
    map
}

fn with_description(schema: &Value, description: &str) -> Value {
    let mut schema = schema.clone();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".into(), json!(description));
    }
    schema
}

/// One of these keywords.
pub(crate) fn enumeration<T>(keywords: &[(&str, T)]) -> Value {
    let keywords: Vec<&str> = keywords.iter().map(|(keyword, _)| *keyword).collect();
    json!({ "enum": keywords })
}

/// The names of limits, levels, groups and buckets.
pub(crate) fn name_pattern() -> Value {
    json!({ "type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$" })
}

/// A reference to a definition.
pub(crate) fn definition_ref(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

pub(crate) fn list_of(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// A list with at least one item.
pub(crate) fn non_empty_list_of(items: &Value) -> Value {
    json!({ "type": "array", "items": items, "minItems": 1 })
}

pub(crate) fn one_or_list(items: &Value) -> Value {
    json!({ "anyOf": [items, non_empty_list_of(items)] })
}

pub(crate) fn map_of(values: &Value) -> Value {
    json!({ "type": "object", "additionalProperties": values })
}

fn pattern(description: &str, pattern: &str, examples: &[&str]) -> Value {
    json!({ "type": "string", "description": description, "pattern": pattern, "examples": examples })
}

/// The names of attributes.
pub(super) const ATTRIBUTE: &str =
    "^(ip|method|host|route|path|domain|(header|query|cookie|claim|descriptor)\\..+)$";

/// The shared definitions, by name.
pub(super) fn definitions() -> Map<String, Value> {
    let scalar = json!({ "type": ["string", "number", "boolean"] });
    let status = json!({ "type": "integer", "minimum": 400, "maximum": 599 });
    let others = [
        (
            "number",
            json!({
                "description": "A whole number, also with a unit: 1_000, 10k, 1M, 1MiB.",
                "anyOf": [{ "type": "integer", "minimum": 0 }, { "type": "string", "pattern": "^\\s*[0-9]" }],
            }),
        ),
        ("mode", enumeration(&MODES)),
        ("status", status),
        ("scalar", scalar),
        ("test", test_definition()),
        ("match", match_schema()),
    ];
    text_definitions()
        .into_iter()
        .chain(others)
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// Definitions of texts with a grammar.
fn text_definitions() -> [(&'static str, Value); 6] {
    [
        (
            "attribute",
            pattern(
                "An attribute of a request.",
                ATTRIBUTE,
                &[
                    "ip",
                    "method",
                    "host",
                    "route",
                    "header.x-api-key",
                    "query.page",
                    "cookie.session",
                    "claim.sub",
                    "descriptor.tenant",
                    "domain",
                ],
            ),
        ),
        (
            "rate",
            pattern(
                "An amount per period.",
                "^\\s*[0-9].*(/|\\sper\\s|\\severy\\s).*\\S",
                &["10/s", "1000/min", "5000/h", "1M/month", "100 per 15m"],
            ),
        ),
        (
            "duration",
            pattern(
                "A duration.",
                "^\\s*[0-9].*[a-zµ]\\s*$",
                &["250ms", "10s", "15m", "2h", "1d", "1h30m"],
            ),
        ),
        (
            "percent",
            pattern("A percentage.", "^\\s*[0-9].*%\\s*$", &["2%", "12.5%"]),
        ),
        (
            "network",
            pattern(
                "An address or a network.",
                "^\\s*[0-9a-fA-F:][0-9a-fA-F:.]*(/[0-9]{1,3})?\\s*$",
                &["10.0.0.0/8", "2001:db8::/32", "192.0.2.1"],
            ),
        ),
        (
            "template",
            pattern(
                "A route template.",
                "^\\s*/",
                &["/v1/items/{id}", "/files/{*rest}"],
            ),
        ),
    ]
}

/// A condition on one attribute.
fn test_definition() -> Value {
    json!({
        "description": "A value, a list of alternatives, `present`, `absent`, or a map: { glob: … }, { in: … }, { not: … }.",
        "anyOf": [
            definition_ref("scalar"),
            non_empty_list_of(&definition_ref("scalar")),
            test_schema(),
        ],
    })
}

/// Conditions by attribute.
fn match_schema() -> Value {
    let single = [
        ("ip", "Addresses, networks, { in: LIST } or { not: … }."),
        ("method", "Methods, in capitals."),
        ("host", "Hosts; a text with `*` or `?` is a pattern."),
        ("route", "Route templates."),
        ("path", "Paths; a text with `*` or `?` is a pattern."),
        ("domain", "The domain of an Envoy request."),
    ];
    let families = [
        ("header", "Headers by their names."),
        ("query", "Parameters of the query by their names."),
        ("cookie", "Cookies by their names."),
        ("claim", "Claims of a verified token by their names."),
        (
            "descriptor",
            "Entries of an Envoy descriptor by their names.",
        ),
    ];
    let about = |(name, doc), schema| FieldSpec {
        name,
        default: FieldDefault::None,
        doc,
        schema,
    };
    let single = single.map(|row| about(row, || definition_ref("test")));
    let families = families.map(|row| about(row, || map_of(&definition_ref("test"))));
    let mut matching = object(single.into_iter().chain(families));
    if let Some(matching) = matching.as_object_mut() {
        matching.insert(
            "description".into(),
            json!("Conditions on attributes, all of which must hold."),
        );
        let families = json!({
            "^header\\..+": with_description(&definition_ref("test"), "A header by its name."),
            "^query\\..+": with_description(&definition_ref("test"), "A parameter of the query."),
            "^cookie\\..+": with_description(&definition_ref("test"), "A cookie."),
            "^claim\\..+": with_description(&definition_ref("test"), "A claim of a verified token."),
            "^descriptor\\..+": with_description(&definition_ref("test"), "An entry of an Envoy descriptor."),
        });
        matching.insert("patternProperties".into(), families);
    }
    matching
}
