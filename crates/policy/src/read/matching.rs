//! Reads `match`.
//!
//! Must not know: how requests are matched.

use serde_json::{Value as Json, json};

use super::TreeReader;
use super::condition_values::{read_globs, read_in_lists, read_values};
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::scalar::FAMILIES;
use crate::attributes::Attribute;
use crate::model::{Condition, Match, Test};
use crate::schema::{definition_ref, object, one_or_list};
use crate::source::{Located, MapEntry, SourceNode, SourceValue};

/// A test written as a map; exactly one field is set.
#[derive(Default)]
pub(crate) struct TestDraft {
    not: Option<SourceNode>,
    glob: Option<SourceNode>,
    within: Option<SourceNode>,
    present: Option<SourceNode>,
}

/// The fields of a test written as a map.
pub(crate) const TEST: [Field<TestDraft>; 4] = [
    Field::new(
        "not",
        FieldDefault::None,
        "The attribute is present and does not pass this test.",
        || definition_ref("test"),
        |_, node, _, test| test.not = Some(node.clone()),
    ),
    Field::new(
        "glob",
        FieldDefault::None,
        "Patterns: `*` any run without `/`, `**` any run, `?` one character.",
        || one_or_list(&json!({ "type": "string" })),
        |_, node, _, test| test.glob = Some(node.clone()),
    ),
    Field::new(
        "in",
        FieldDefault::None,
        "Names of `lists` of networks.",
        || one_or_list(&json!({ "type": "string" })),
        |_, node, _, test| test.within = Some(node.clone()),
    ),
    Field::new(
        "present",
        FieldDefault::None,
        "Whether the attribute is present.",
        || json!({ "type": "boolean" }),
        |_, node, _, test| test.present = Some(node.clone()),
    ),
];

/// The schema of a test written as a map.
pub(crate) fn test_schema() -> Json {
    let mut map = object(field_specs(&TEST));
    if let Some(map) = map.as_object_mut() {
        map.insert("minProperties".into(), json!(1));
        map.insert("maxProperties".into(), json!(1));
    }
    map
}

/// Reads the conditions of a map. An invalid condition does not hide the others.
pub(super) fn read_match(reader: &mut TreeReader, node: &SourceNode) -> Option<Match> {
    let fields = FieldReader::open(reader, node, "`match`", "{ method: POST, route: /login }")?;
    let mut conditions: Vec<(&str, Located<Condition>)> = Vec::new();
    for (entry, name) in flatten_families(fields.entries) {
        let Some(condition) = read_condition(reader, entry, &name) else {
            continue;
        };
        let first = conditions
            .iter()
            .find(|(_, first)| first.value.attribute == condition.attribute);
        match first {
            None => conditions.push((
                &entry.name.value,
                Located::new(condition, entry.name.location),
            )),
            // Exact duplicates are reported for all maps elsewhere.
            Some((written, _)) if *written == &*entry.name.value => {}
            Some((_, first)) => reader.diagnostics.add(
                entry.name.location,
                format!(
                    "`match` names `{}` twice; first on line {}",
                    condition.attribute, first.location.line
                ),
                "keep one; a list of values matches any of them",
            ),
        }
    }
    Some(Match {
        conditions: conditions
            .into_iter()
            .map(|(_, condition)| condition)
            .collect(),
    })
}

/// `header: { x-plan: free }` means `header.x-plan: free`. TOML parses a dotted name to this form.
fn flatten_families(entries: &[MapEntry]) -> Vec<(&MapEntry, String)> {
    let mut all = Vec::with_capacity(entries.len());
    for entry in entries {
        let name = &*entry.name.value;
        match &entry.value.value {
            SourceValue::Map(inner) if FAMILIES.contains(&name) => {
                all.extend(
                    inner
                        .iter()
                        .map(|inner| (inner, format!("{name}.{}", inner.name.value))),
                );
            }
            _ => all.push((entry, name.to_owned())),
        }
    }
    all
}

fn read_condition(reader: &mut TreeReader, entry: &MapEntry, name: &str) -> Option<Condition> {
    if ["status", "message", "match"].contains(&name) {
        reader.diagnostics.add(
            entry.name.location,
            format!("`match`: unknown attribute `{name}`"),
            format!("write the conditions under `match:` and `{name}` beside it"),
        );
        return None;
    }
    let attribute = reader.parse_attribute(name, entry.name.location, "match")?;
    let test = read_test(reader, &attribute, &entry.value, name)?;
    Some(Condition { attribute, test })
}

fn read_test(
    reader: &mut TreeReader,
    attribute: &Attribute,
    node: &SourceNode,
    name: &str,
) -> Option<Test> {
    match &node.value {
        SourceValue::Null => {
            reader.diagnostics.add(
                node.location,
                format!("`{name}` has no value"),
                "write a value, `present` or `absent`",
            );
            None
        }
        SourceValue::Scalar {
            text,
            quoted: false,
        } if &**text == "present" => Some(Test::Present),
        SourceValue::Scalar {
            text,
            quoted: false,
        } if &**text == "absent" => Some(Test::Absent),
        SourceValue::Scalar { .. } => {
            read_values(reader, attribute, std::slice::from_ref(node), name)
        }
        SourceValue::List(nodes) => {
            if nodes.is_empty() {
                reader.diagnostics.add(
                    node.location,
                    format!("`{name}` has an empty list, so nothing would match"),
                    "write at least one value, or leave the condition out",
                );
                return None;
            }
            read_values(reader, attribute, nodes, name)
        }
        SourceValue::Map(_) => read_map_test(reader, attribute, node, name),
    }
}

/// `{ not: … }`, `{ glob: … }`, `{ in: … }`, `{ present: … }`.
fn read_map_test(
    reader: &mut TreeReader,
    attribute: &Attribute,
    node: &SourceNode,
    name: &str,
) -> Option<Test> {
    let mut fields = FieldReader::open(reader, node, format!("`{name}`"), "{ not: admin }")?;
    if fields.entries.len() > 1 {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` has several tests"),
            "write one of `not`, `glob`, `in` and `present`",
        );
        return None;
    }
    let mut draft = TestDraft::default();
    fields.read(reader, &TEST, &mut draft);
    if fields.entries.is_empty() {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` has no value"),
            "write a value, `present` or `absent`",
        );
        return None;
    }
    fields.finish(reader);
    if let Some(node) = &draft.present {
        let is_present = reader.boolean(node, "present")?;
        return Some(if is_present {
            Test::Present
        } else {
            Test::Absent
        });
    }
    if let Some(node) = &draft.glob {
        return read_globs(reader, attribute, node, name);
    }
    if let Some(node) = &draft.within {
        return read_in_lists(reader, attribute, node, name);
    }
    match read_test(reader, attribute, draft.not.as_ref()?, name)? {
        Test::Present | Test::Absent | Test::Not(_) => {
            reader.diagnostics.add(
                node.location,
                format!("`{name}`: this `not` is redundant"),
                "write `present`, `absent`, or the values",
            );
            None
        }
        inner => Some(Test::Not(Box::new(inner))),
    }
}
