//! How schemas are put together, and the small ones that the others refer to.
//!
//! Patterns are wide: they catch what is no rate at all and leave the rest to the reader, which explains more. Must not
//! know: fields of limits.

use serde_json::{Map, Value, json};

/// One field: its name, what editors say about it, and its schema.
pub(super) type Field<'a> = (&'a str, &'a str, Value);

/// A map of these fields and no others.
pub(super) fn object(fields: &[Field<'_>], required: &[&str]) -> Value {
    let properties: Map<String, Value> = fields
        .iter()
        .map(|(name, description, schema)| ((*name).to_owned(), described(schema, description)))
        .collect();
    let mut object = json!({
        "type": "object",
        "properties": properties,
        "additionalProperties": false,
    });
    if let (Some(object), false) = (object.as_object_mut(), required.is_empty()) {
        object.insert("required".into(), json!(required));
    }
    object
}

fn described(schema: &Value, description: &str) -> Value {
    let mut schema = schema.clone();
    if let Some(schema) = schema.as_object_mut() {
        schema.insert("description".into(), json!(description));
    }
    schema
}

/// The definition of this name.
pub(super) fn of(definition: &str) -> Value {
    json!({ "$ref": format!("#/$defs/{definition}") })
}

pub(super) fn list_of(items: &Value) -> Value {
    json!({ "type": "array", "items": items })
}

/// A list that has something in it.
pub(super) fn some_of(items: &Value) -> Value {
    json!({ "type": "array", "items": items, "minItems": 1 })
}

pub(super) fn one_or_list(items: &Value) -> Value {
    json!({ "anyOf": [items, some_of(items)] })
}

pub(super) fn map_of(values: &Value) -> Value {
    json!({ "type": "object", "additionalProperties": values })
}

fn pattern(description: &str, pattern: &str, examples: &[&str]) -> Value {
    json!({ "type": "string", "description": description, "pattern": pattern, "examples": examples })
}

/// An attribute of a request, as `match`, keys and costs name it.
pub(super) const ATTRIBUTE: &str =
    "^(ip|method|host|route|path|domain|(header|query|cookie|claim|descriptor)\\..+)$";

/// The small schemas by their names.
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
        ("mode", json!({ "enum": ["enforce", "shadow", "off"] })),
        ("status", status),
        ("scalar", scalar),
        ("test", test()),
        ("match", matching()),
    ];
    words()
        .into_iter()
        .chain(others)
        .map(|(name, schema)| (name.to_owned(), schema))
        .collect()
}

/// Texts that follow a grammar.
fn words() -> [(&'static str, Value); 6] {
    [
        (
            "attribute",
            pattern(
                "What is known of a request.",
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
                "So many per period.",
                "^\\s*[0-9].*(/|\\sper\\s|\\severy\\s).*\\S",
                &["10/s", "1000/min", "5000/h", "1M/month", "100 per 15m"],
            ),
        ),
        (
            "duration",
            pattern(
                "A length of time.",
                "^\\s*[0-9].*[a-zµ]\\s*$",
                &["250ms", "10s", "15m", "2h", "1d", "1h30m"],
            ),
        ),
        (
            "percent",
            pattern("A share.", "^\\s*[0-9].*%\\s*$", &["2%", "12.5%"]),
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

/// What one attribute must be like.
fn test() -> Value {
    json!({
        "description": "A value, a list of which one must fit, `present`, `absent`, or a map: { glob: … }, { in: … }, { not: … }.",
        "anyOf": [
            of("scalar"),
            some_of(&of("scalar")),
            test_map(),
        ],
    })
}

fn test_map() -> Value {
    let text = json!({ "type": "string" });
    let mut map = object(
        &[
            (
                "glob",
                "Patterns: `*` any run without `/`, `**` any run, `?` one character.",
                one_or_list(&text),
            ),
            ("in", "Names of `lists` of networks.", one_or_list(&text)),
            (
                "present",
                "Whether it is there, whatever its value.",
                json!({ "type": "boolean" }),
            ),
            ("not", "It is there, and this does not hold.", of("test")),
        ],
        &[],
    );
    if let Some(map) = map.as_object_mut() {
        map.insert("minProperties".into(), json!(1));
        map.insert("maxProperties".into(), json!(1));
    }
    map
}

/// Conditions by attribute.
fn matching() -> Value {
    let all = map_of(&of("test"));
    let fields: [Field<'_>; 11] = [
        (
            "ip",
            "Addresses, networks, { in: LIST } or { not: … }.",
            of("test"),
        ),
        ("method", "Methods, in capitals.", of("test")),
        (
            "host",
            "Hosts; a text with `*` or `?` is a pattern.",
            of("test"),
        ),
        ("route", "Route templates.", of("test")),
        (
            "path",
            "Paths; a text with `*` or `?` is a pattern.",
            of("test"),
        ),
        ("domain", "The domain of an Envoy request.", of("test")),
        ("header", "Headers by their names.", all.clone()),
        (
            "query",
            "Parameters of the query by their names.",
            all.clone(),
        ),
        ("cookie", "Cookies by their names.", all.clone()),
        (
            "claim",
            "Claims of a verified token by their names.",
            all.clone(),
        ),
        (
            "descriptor",
            "Entries of an Envoy descriptor by their names.",
            all,
        ),
    ];
    let mut matching = object(&fields, &[]);
    if let Some(matching) = matching.as_object_mut() {
        matching.insert(
            "description".into(),
            json!("Conditions on attributes, all of which must hold."),
        );
        let families = json!({
            "^header\\..+": described(&of("test"), "A header by its name."),
            "^query\\..+": described(&of("test"), "A parameter of the query."),
            "^cookie\\..+": described(&of("test"), "A cookie."),
            "^claim\\..+": described(&of("test"), "A claim of a verified token."),
            "^descriptor\\..+": described(&of("test"), "An entry of an Envoy descriptor."),
        });
        matching.insert("patternProperties".into(), families);
    }
    matching
}
