//! The field reference in docs/policy.md: tables generated from the declarations of fields and algorithms.
//!
//! The document marks a table with `<!-- fields: limit -->` and `<!-- end -->`. After a change to a field run `cargo
//! run -p tollgate-policy --example reference`. Must not know: the other content of the document.

use std::fmt::Write as _;

use crate::model::Algorithm;
use crate::read::{FieldDefault, FieldSpec, tables};

const END: &str = "<!-- end -->";

/// Returns the document with all tables regenerated.
///
/// ```
/// let old = "<!-- fields: fleet -->\nold\n<!-- end -->\n";
/// let new = tollgate_policy::reference::update_tables(old);
/// assert!(new.contains("| `nodes` |") && !new.contains("old"));
/// ```
#[must_use]
pub fn update_tables(document: &str) -> String {
    let mut out = document.to_owned();
    let fields = tables().map(|(name, fields)| (name, table(&fields)));
    for (name, table) in fields.into_iter().chain([("algorithms", algorithms())]) {
        let begin = format!("<!-- fields: {name} -->\n");
        let Some((before, rest)) = out.split_once(&begin) else {
            continue;
        };
        let Some((_, after)) = rest.split_once(END) else {
            continue;
        };
        out = format!("{before}{begin}{table}{END}{after}");
    }
    out
}

fn table(fields: &[FieldSpec]) -> String {
    let mut out = String::from("| field | meaning | default |\n|---|---|---|\n");
    for field in fields {
        let absent = match field.default {
            FieldDefault::Required(_) => "required ".to_owned(),
            FieldDefault::Value(value) => format!("`{value}` "),
            FieldDefault::Description(words) => format!("{words} "),
            FieldDefault::None => String::new(),
        };
        let _infallible = writeln!(out, "| `{}` | {} | {absent}|", field.name, field.doc);
    }
    out
}

fn algorithms() -> String {
    let mut out = String::from("| `algorithm` | what it promises | burst |\n|---|---|---|\n");
    for (name, algorithm) in Algorithm::BY_NAME {
        let properties = algorithm.properties();
        let burst = properties.burst.map(|burst| format!("{burst} "));
        let burst = burst.unwrap_or_default();
        let _infallible = writeln!(out, "| `{name}` | {} | {burst}|", properties.guarantee);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load;
    use crate::model::Policy;
    use crate::source::SourceFormat;

    const DOCUMENT: &str = include_str!("../../../docs/policy.md");

    #[test]
    fn the_published_reference_is_current_and_has_every_table() {
        assert!(
            update_tables(DOCUMENT) == DOCUMENT,
            "docs/policy.md is not current: cargo run -p tollgate-policy --example reference"
        );
        for (name, _) in tables() {
            let begin = format!("<!-- fields: {name} -->");
            assert!(DOCUMENT.contains(&begin), "{name}");
        }
        // Negative control.
        let changed = DOCUMENT.replace("`unit` |", "`units` |");
        assert_ne!(update_tables(&changed), changed);
    }

    /// Policies with a placeholder for a field of a map.
    const TEMPLATES: [(&str, &str); 11] = [
        ("policy", "{ limits: [{ name: a, rate: 9/s }] @ }"),
        ("limit", "{ limits: [{ name: a, rate: 9/s @ }] }"),
        ("limit", "{ limits: [{ name: a, rate: 9/s, key: ip @ }] }"),
        ("limit", "{ limits: [{ name: a, concurrency: 9 @ }] }"),
        (
            "limit",
            "{ limits: [{ name: a, rate: 9/week, algorithm: fixed_window @ }] }",
        ),
        (
            "key",
            "{ limits: [{ name: a, rate: 9/s, key: { attribute: ip @ } }] }",
        ),
        ("deny", "{ deny: [{ match: { method: GET } @ }] }"),
        (
            "cost-by",
            "{ limits: [{ name: a, rate: 9/s, cost: { by: method, GET: 2 @ } }] }",
        ),
        (
            "cost-from",
            "{ limits: [{ name: a, rate: 9/s, cost: { from: header.n @ } }] }",
        ),
        (
            "cost-response",
            "{ limits: [{ name: a, rate: 9/s, cost: { response: n @ } }] }",
        ),
        (
            "cost-response-body",
            "{ limits: [{ name: a, rate: 9/s, cost: { response_body: bytes @ } }] }",
        ),
    ];

    fn with(text: &str, more: &str) -> Option<Policy> {
        load(&text.replace(" @", more), "a.yaml", SourceFormat::Yaml).ok()
    }

    #[test]
    fn an_omitted_field_has_the_documented_default() {
        let mut compared = 0;
        for (name, fields) in tables() {
            let templates = TEMPLATES.iter().filter(|(of, _)| *of == name);
            // Levels and overrides have the quota fields of limits.
            if templates.clone().count() == 0 {
                continue;
            }
            for field in fields {
                let FieldDefault::Value(value) = field.default else {
                    continue;
                };
                let given = format!(", {}: \"{value}\"", field.name);
                let bare = given.replace('"', "");
                let same: Vec<bool> = templates
                    .clone()
                    .filter_map(|(_, text)| {
                        let given = with(text, &bare).or_else(|| with(text, &given))?;
                        Some(with(text, "")? == given)
                    })
                    .collect();
                assert!(same.contains(&true), "`{}` of {name}: {same:?}", field.name);
                compared += 1;
            }
        }
        assert!(compared > 20, "{compared}");
    }

    #[test]
    fn control_a_value_other_than_the_default_changes_the_policy() {
        for (name, text) in TEMPLATES
            .iter()
            .filter(|(name, _)| *name == "limit")
            .take(2)
        {
            assert_ne!(with(text, ""), with(text, ", mode: off"), "{name}");
        }
    }
}
