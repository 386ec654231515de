//! The published schema is current, documents every field, and accepts and rejects the right policies.

mod validate;

use std::sync::LazyLock;

use serde_json::{Value, json};

use super::{schema, text};
use crate::source::{self, SourceFormat, SourceNode};
use validate::errors;

/// A tree as JSON, as editors see it: unquoted numbers and booleans are not strings.
fn as_json(node: &SourceNode) -> Value {
    match &node.value {
        source::SourceValue::Null => Value::Null,
        source::SourceValue::Scalar { text, quoted: true } => json!(text),
        source::SourceValue::Scalar { text, .. } => match &**text {
            "true" => json!(true),
            "false" => json!(false),
            other => other
                .parse::<u64>()
                .map_or_else(|_| json!(text), |n| json!(n)),
        },
        source::SourceValue::List(values) => values.iter().map(as_json).collect(),
        source::SourceValue::Map(entries) => Value::Object(
            entries
                .iter()
                .map(|entry| (entry.name.value.to_string(), as_json(&entry.value)))
                .collect(),
        ),
    }
}

/// The schema errors of a YAML text.
pub(crate) fn schema_errors(yaml: &str) -> Vec<String> {
    let tree = source::parse(yaml, SourceFormat::Yaml).unwrap_or_else(|p| panic!("{p:?}\n{yaml}"));
    static SCHEMA: LazyLock<Value> = LazyLock::new(schema);
    errors(&SCHEMA, &as_json(&tree))
}

/// The schema errors of a JSON text.
pub(crate) fn schema_errors_of_json(text: &str) -> Vec<String> {
    errors(&schema(), &serde_json::from_str(text).unwrap())
}

/// A limit with these fields.
fn limit(fields: &str) -> String {
    format!(
        "limits:\n  - name: a\n    {}\n",
        fields.replace('\n', "\n    ")
    )
}

#[test]
fn the_published_schema_is_current() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/policy.schema.json");
    let published = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        published == text(),
        "docs/policy.schema.json is not current: cargo run -- schema > docs/policy.schema.json"
    );
}

/// Every field without a description, by its path.
fn unexplained(schema: &Value, path: &str, found: &mut Vec<String>) {
    match schema {
        Value::Array(values) => {
            for value in values {
                unexplained(value, path, found);
            }
        }
        Value::Object(members) => {
            for (name, value) in members {
                let path = format!("{path}/{name}");
                if let ("properties" | "patternProperties", Some(fields)) =
                    (name.as_str(), value.as_object())
                {
                    let bare = fields.iter().filter(|(_, field)| {
                        field["description"].as_str().is_none_or(str::is_empty)
                    });
                    found.extend(bare.map(|(field, _)| format!("{path}/{field}")));
                }
                unexplained(value, &path, found);
            }
        }
        _ => {}
    }
}

#[test]
fn every_field_has_a_description() {
    let mut found = Vec::new();
    unexplained(&schema(), "", &mut found);
    assert_eq!(found, [""; 0]);
    // Negative control.
    unexplained(
        &json!({ "properties": { "a": { "type": "string" } } }),
        "",
        &mut found,
    );
    assert_eq!(found, ["/properties/a"]);
}

#[test]
fn valid_policies_pass_the_schema() {
    for file in [
        "mode: off\nfleet: { nodes: 3 }\ndivergence_threshold: 2%\nlimits: none\n",
        "lists: { office: [10.0.0.0/8, \"2001:db8::/32\"], one: 192.0.2.1 }\nroutes: [\"/v1/items/{id}\"]\n",
        "groups: { aws: { apply: narrowest } }\n",
        "exempt: [ { match: { ip: { in: office } } }, { header.x-probe: present } ]\n",
        "deny: [ { match: { path: \"/wp-*\" }, status: 403, message: no } ]\n",
    ] {
        assert_eq!(schema_errors(file), [""; 0], "{file}");
    }
    for fields in [
        "rate: 10/s",
        "id: 7\nrate: [10/s, 1000/h]",
        "match:\n  method: [GET, POST]\n  host: \"*.example.com\"\n  route: /api/{*rest}\n  ip: { in: [office, lab] }\n  query.debug: absent\n  cookie: { session: { present: true } }\n  claim.role: { not: [admin] }\n  descriptor.tenant: { glob: \"acme-*\" }\nrate: 1/s",
        "key: [ip, header.x-api-key]\nrate: 1000/min",
        "key: ip\nmissing: skip\nrate: 100 per 15m",
        "key:\n  - { attribute: header.x-user, lower: true, hash: true, missing: skip }\n  - { attribute: ip, v4: 24, v6: 56 }\nrate: 1M/month\nutc_offset: \"+02:00\"",
        "rate: 5000/h + 50/h × claim.repos, at most 12500/h",
        "rate: { base: 5000/h, each: 50/h, times: claim.repos, at_most: 12500/h }",
        "concurrency: 20\nlease: 30s",
        "rate: 1/s\nalgorithm: sliding_log\nburst: auto\nunit: bytes",
        "rate: 1/s\ntiers: { by: header.x-plan, free: 100/min, pro: { rate: 5000/min, burst: 500 }, partner: unlimited }",
        "key: ip\nrate: 1/s\noverrides: [ { key: [abc], rate: 9000/min }, { key: 7, unlimited: true } ]",
        "levels:\n  - { name: org, key: [claim.org], rate: 10000/min }\n  - { name: project, key: [claim.project], rate: 1000/min }",
        "rate: 1/s\ncost: 5",
        "rate: 1/s\ncost: { by: method, GET: 1, POST: 5, otherwise: 1 }",
        "rate: 1/s\ncost: { from: header.x-cost, at_least: 1, at_most: 100, otherwise: 1 }",
        "rate: 1/s\ncost: { response: x-tokens-used, estimate: 100, at_most: 10000 }",
        "rate: 1/s\ncount: denials",
        "rate: 1/s\ncount: { responses: [401, 4xx] }",
        "rate: 1/s\ndistinct: path\nlocal: 2000/s\ncandidate: { rate: 2/s, algorithm: leaky_bucket }",
        "rate: 1/s\ngroup: aws\nbucket: messages\nmode: shadow\nenforce: 25%\nwait: 2s\npenalty: block 10m",
        "rate: 1/s\ncharge: always\noverdraft: 100\non_store_failure: closed\nconsistency: async 1s\ncolocate: header.x-api-key\nstatus: 429\nmessage: Slow down",
    ] {
        assert_eq!(schema_errors(&limit(fields)), [""; 0], "{fields}");
    }
}

#[test]
fn invalid_shapes_fail_the_schema() {
    for fields in [
        "rat: 10/s",
        "key: ip",
        "rate: 10",
        "rate: fast",
        "rate: []",
        "rate: 1/s\nkey: weather",
        "rate: 1/s\nkey: { attribute: ip, v4: 33 }",
        "rate: 1/s\nmissing: maybe",
        "rate: 1/s\nid: 0",
        "rate: 1/s\nalgorithm: magic",
        "rate: 1/s\nburst: many",
        "rate: 1/s\nmode: on",
        "rate: 1/s\nenforce: 25",
        "rate: 1/s\nwait: 2",
        "rate: 1/s\npenalty: block",
        "rate: 1/s\ncost: { per: method }",
        "rate: 1/s\ncount: { responses: [9xx] }",
        "rate: 1/s\ntiers: { free: 1/s }",
        "rate: 1/s\nstatus: 42",
        "rate: 1/s\nmatch: { wether: x }",
        "rate: 1/s\nmatch: { ip: { within: x } }",
        "rate: 1/s\nmatch: { header.a: [] }",
        "concurrency: -1",
        "rate: { base: 1/s, each: 1/s, times: claim.x }",
        "levels: []",
    ] {
        assert_ne!(schema_errors(&limit(fields)), [""; 0], "{fields}");
    }
    for file in [
        "limit: []\n",
        "limits: {}\n",
        "limits: [{ rate: 1/s }]\n",
        "limits: [{ name: \"a b\", rate: 1/s }]\n",
        "fleet: { nodes: 0 }\n",
        "routes: [v1]\n",
        "deny: [{ status: 403 }]\n",
        "deny: [{ match: { ip: 10.0.0.0/8 }, status: 200 }]\n",
        "lists: { office: [example.com] }\n",
    ] {
        assert_ne!(schema_errors(file), [""; 0], "{file}");
    }
}
