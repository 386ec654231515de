//! The JSON Schema of a policy file, so that editors complete fields, explain them and underline mistakes.
//!
//! It knows shapes, not meanings: whatever loads is valid by it, and much that is valid by it is refused by the checks,
//! which say more. Published as `docs/policy.schema.json`; after a change of this module:
//! `cargo run -p tollgate-policy --example schema > docs/policy.schema.json`. Must not know: how files are read.

mod limit;
mod parts;

use serde_json::{Value, json};

use parts::{list_of, map_of, object, of, one_or_list};

/// Where the schema of this version is published.
const ID: &str =
    "https://raw.githubusercontent.com/tollgate-rs/tollgate/main/docs/policy.schema.json";

/// The schema (JSON Schema 2020-12).
#[must_use]
pub fn schema() -> Value {
    let mut root = object(
        &[
            (
                "mode",
                "Of everything at once: `enforce`, `shadow` (count and report only) or `off`. The strictest of this and a limit's own mode holds.",
                of("mode"),
            ),
            ("fleet", "The instances that share the quotas.", fleet()),
            (
                "divergence_threshold",
                "Above this share of differing decisions a candidate is advised against (default 2%).",
                of("percent"),
            ),
            (
                "lists",
                "Named networks, for `ip: { in: NAME }`.",
                map_of(&one_or_list(&of("network"))),
            ),
            (
                "routes",
                "Route templates that no limit matches by, so that `route` can be a key for them too.",
                list_of(&of("template")),
            ),
            (
                "groups",
                "How the limits of a group combine when several of them match.",
                map_of(&group()),
            ),
            (
                "exempt",
                "Requests that no limit applies to.",
                list_of(&json!({ "anyOf": [exempt(), of("match")] })),
            ),
            (
                "deny",
                "Requests that are refused without asking any limit.",
                list_of(&json!({ "anyOf": [deny(), of("match")] })),
            ),
            (
                "limits",
                "The limits. All that match a request apply to it.",
                list_of(&of("limit")),
            ),
            (
                "$schema",
                "The address of this schema, for editors.",
                json!({ "type": "string" }),
            ),
        ],
        &[],
    );
    if let Some(root) = root.as_object_mut() {
        root.insert(
            "$schema".into(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        root.insert("$id".into(), json!(ID));
        root.insert("title".into(), json!("Tollgate policy"));
        root.insert(
            "description".into(),
            json!("Who gets how much, and what happens when it is spent."),
        );
        root.insert("minProperties".into(), json!(1));
        let mut definitions = parts::definitions();
        definitions.extend(limit::definitions());
        root.insert("$defs".into(), Value::Object(definitions));
    }
    root
}

/// The schema as it is published.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn fleet() -> Value {
    object(
        &[(
            "nodes",
            "How many instances share the quotas, where nothing better is known.",
            json!({ "type": "integer", "minimum": 1 }),
        )],
        &[],
    )
}

fn group() -> Value {
    let apply = json!({ "enum": ["all", "narrowest"] });
    object(
        &[(
            "apply",
            "`all` (the default), or `narrowest`: only the limit with the most conditions.",
            apply,
        )],
        &[],
    )
}

fn exempt() -> Value {
    object(&[("match", "Which requests.", of("match"))], &["match"])
}

fn deny() -> Value {
    object(
        &[
            ("match", "Which requests.", of("match")),
            (
                "status",
                "The status of the answer (default 403).",
                of("status"),
            ),
            (
                "message",
                "The message of the answer.",
                json!({ "type": "string" }),
            ),
        ],
        &["match"],
    )
}

#[cfg(test)]
pub(crate) mod tests;
