//! The JSON Schema of policy files, for completion and validation in editors.
//!
//! It describes shapes only: every policy that loads is valid by it, but `check` rejects more. Published as
//! `docs/policy.schema.json`; after a change to a field run `cargo run -- schema > docs/policy.schema.json`. Must not
//! know: how files are read.

mod builders;

use serde_json::{Value, json};

pub(crate) use builders::{
    definition_ref, enumeration, lax_object, list_of, map_of, name_pattern, non_empty_list_of,
    object, object_with_values, one_or_list,
};

/// The published address of the schema.
const ID: &str =
    "https://raw.githubusercontent.com/tollgate-rs/tollgate/main/docs/policy.schema.json";

/// The schema (JSON Schema 2020-12).
#[must_use]
pub fn schema() -> Value {
    let mut root = crate::read::schema();
    if let Some(root) = root.as_object_mut() {
        root.insert(
            "$schema".into(),
            json!("https://json-schema.org/draft/2020-12/schema"),
        );
        root.insert("$id".into(), json!(ID));
        root.insert("title".into(), json!("Tollgate policy"));
        root.insert(
            "description".into(),
            json!("Limits with their keys and quotas, and what happens on a denial."),
        );
        root.insert("minProperties".into(), json!(1));
        let mut definitions = builders::definitions();
        for (name, schema) in crate::read::schemas() {
            definitions.insert(name.to_owned(), schema);
        }
        root.insert("$defs".into(), Value::Object(definitions));
    }
    root
}

/// The text of the published schema.
#[must_use]
pub fn text() -> String {
    format!("{:#}\n", schema())
}

#[cfg(test)]
pub(crate) mod tests;
