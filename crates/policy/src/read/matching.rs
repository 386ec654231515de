//! `match`: what attributes must be like.
//!
//! Must not know: how rules are found by a request.

use serde_json::{Value as Json, json};

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs};
use super::scalar::{FAMILIES, describe_node};
use crate::attributes::Attribute;
use crate::grammar::{self, GrammarError, nearest_name, quote};
use crate::model::{Condition, IpNet, Match, Test};
use crate::schema::{definition_ref, object, one_or_list};
use crate::source::{Located, MapEntry, SourceNode, SourceValue};

/// A test that is written as a map: one of these.
#[derive(Default)]
pub(crate) struct TestDraft {
    not: Option<SourceNode>,
    glob: Option<SourceNode>,
    within: Option<SourceNode>,
    present: Option<SourceNode>,
}

/// The fields of a test that is written as a map.
pub(crate) const TEST: [Field<TestDraft>; 4] = [
    Field::new(
        "not",
        FieldDefault::None,
        "It is there, and this does not hold.",
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
        "Whether it is there, whatever its value.",
        || json!({ "type": "boolean" }),
        |_, node, _, test| test.present = Some(node.clone()),
    ),
];

/// The schema of a test that is written as a map.
pub(crate) fn test_schema() -> Json {
    let mut map = object(field_specs(&TEST));
    if let Some(map) = map.as_object_mut() {
        map.insert("minProperties".into(), json!(1));
        map.insert("maxProperties".into(), json!(1));
    }
    map
}

/// The conditions of a map. What is wrong with one does not hide the others.
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
            // The very same name twice is reported for every map.
            Some((written, _)) if *written == &*entry.name.value => {}
            Some((_, first)) => reader.diagnostics.add(
                entry.name.location,
                format!(
                    "`match` names `{}` twice; first on line {}",
                    condition.attribute, first.location.line
                ),
                "keep one; a list of values means one of them",
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

/// `header: { x-plan: free }` says the same as `header.x-plan: free`, and is what TOML makes of a name with a dot.
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
            format!("`match`: there is no attribute `{name}`"),
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
                "say a value, or `present` or `absent`",
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
                    format!("`{name}` lists no value, so nothing would match"),
                    "say at least one value, or leave the condition out",
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
            format!("`{name}` asks for several things at once"),
            "say one of `not`, `glob`, `in` and `present`",
        );
        return None;
    }
    let mut draft = TestDraft::default();
    fields.read(reader, &TEST, &mut draft);
    if fields.entries.is_empty() {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` has no value"),
            "say a value, or `present` or `absent`",
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
                format!("`{name}`: what is denied here can be said directly"),
                "say `present`, `absent`, or the values themselves",
            );
            None
        }
        inner => Some(Test::Not(Box::new(inner))),
    }
}

/// `{ in: office }`: the networks of a list, or of several.
fn read_in_lists(
    reader: &mut TreeReader,
    attribute: &Attribute,
    node: &SourceNode,
    name: &str,
) -> Option<Test> {
    if *attribute != Attribute::Ip {
        reader.diagnostics.add(
            node.location,
            format!("`{name}`: only `ip` can be `in` a list of networks"),
            format!("write the values in brackets: `{name}: [a, b]`"),
        );
        return None;
    }
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let mut networks = Vec::new();
    for node in nodes {
        let wanted = reader.text(node, "in")?;
        let Some((_, list)) = reader.lists.iter().find(|(name, _)| **name == *wanted) else {
            let known: Vec<&str> = reader.lists.iter().map(|(name, _)| &**name).collect();
            let help = match nearest_name(wanted, known.iter().copied()) {
                Some(meant) => format!("did you mean `{meant}`?"),
                None if grammar::parse_network(wanted).is_ok() => {
                    format!("write `ip: {wanted}` for a network")
                }
                None => format!("add it: `lists: {{ {wanted}: [10.0.0.0/8] }}`"),
            };
            reader.diagnostics.add(
                node.location,
                format!("there is no list {}", quote(wanted)),
                help,
            );
            return None;
        };
        networks.extend(list.iter().copied());
    }
    Some(Test::Within(networks))
}

fn read_globs(
    reader: &mut TreeReader,
    attribute: &Attribute,
    node: &SourceNode,
    name: &str,
) -> Option<Test> {
    if matches!(
        attribute,
        Attribute::Ip | Attribute::Route | Attribute::Method
    ) {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` cannot be matched by a pattern"),
            match attribute {
                Attribute::Ip => "write networks: `10.0.0.0/8`",
                Attribute::Route => "write templates: `/api/{*rest}`; patterns are for `path`",
                _ => "list the methods: `[POST, PUT]`",
            },
        );
        return None;
    }
    let nodes = match &node.value {
        SourceValue::List(nodes) if !nodes.is_empty() => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    let globs = parse_all(reader, nodes, name, |text| {
        grammar::parse_glob(&fold_case(attribute, text))
    })?;
    Some(Test::Glob(globs))
}

/// Hosts are compared in lower case.
fn fold_case(attribute: &Attribute, text: &str) -> String {
    match attribute {
        Attribute::Host => text.to_ascii_lowercase(),
        _ => text.to_owned(),
    }
}

fn read_values(
    reader: &mut TreeReader,
    attribute: &Attribute,
    nodes: &[SourceNode],
    name: &str,
) -> Option<Test> {
    for node in nodes {
        if let SourceValue::Scalar {
            text,
            quoted: false,
        } = &node.value
            && nodes.len() > 1
            && ["present", "absent"].contains(&&**text)
        {
            reader.diagnostics.add(
                node.location,
                format!("`{name}`: `{text}` cannot stand in a list of values"),
                format!(
                    "write two limits, or put it in quotes if the value is the text \"{text}\""
                ),
            );
            return None;
        }
    }
    let patterns = || {
        nodes.iter().any(
            |node| matches!(&node.value, SourceValue::Scalar { text, .. } if text.contains(['*', '?'])),
        )
    };
    match attribute {
        Attribute::Ip => {
            let before = reader.diagnostics.len();
            let networks = read_networks(reader, nodes, name);
            (reader.diagnostics.len() == before).then_some(Test::Within(networks))
        }
        Attribute::Route => Some(Test::Route(parse_all(
            reader,
            nodes,
            name,
            grammar::parse_template,
        )?)),
        Attribute::Method => Some(Test::OneOf(parse_all(
            reader,
            nodes,
            name,
            grammar::parse_method,
        )?)),
        Attribute::Host | Attribute::Path if patterns() => {
            Some(Test::Glob(parse_all(reader, nodes, name, |text| {
                grammar::parse_glob(&fold_case(attribute, text))
            })?))
        }
        Attribute::Host => Some(Test::OneOf(parse_all(reader, nodes, name, parse_host)?)),
        Attribute::Path => Some(Test::OneOf(parse_all(reader, nodes, name, parse_path)?)),
        _ => Some(Test::OneOf(parse_all(reader, nodes, name, |text| {
            Ok(text.into())
        })?)),
    }
}

fn parse_host(text: &str) -> Result<Box<str>, GrammarError> {
    let port = text
        .rsplit_once(':')
        .filter(|(name, port)| !name.contains(':') && port.bytes().all(|b| b.is_ascii_digit()));
    if let Some((name, _)) = port {
        return Err(GrammarError::with_help(
            format!("{} has a port, and hosts are compared without", quote(text)),
            format!("write {}", quote(name)),
        ));
    }
    if text.is_empty() || text.contains(['/', ' ']) {
        return Err(GrammarError::with_help(
            format!("{} is not a host", quote(text)),
            "write a name such as `api.example.com`",
        ));
    }
    Ok(text.to_ascii_lowercase().into())
}

fn parse_path(text: &str) -> Result<Box<str>, GrammarError> {
    if text.starts_with('/') {
        return Ok(text.into());
    }
    Err(GrammarError::with_help(
        format!("{} is not a path: it does not begin with `/`", quote(text)),
        format!("write {}", quote(&format!("/{text}"))),
    ))
}

/// Each value by the same grammar; none if any of them is wrong.
fn parse_all<T>(
    reader: &mut TreeReader,
    nodes: &[SourceNode],
    name: &str,
    grammar: impl Fn(&str) -> Result<T, GrammarError>,
) -> Option<Vec<T>> {
    let read: Vec<T> = nodes
        .iter()
        .filter_map(|node| reader.parse(node, name, &grammar))
        .collect();
    (read.len() == nodes.len()).then_some(read)
}

/// The networks of a list, without those that are wrong, which are reported.
pub(super) fn read_networks(
    reader: &mut TreeReader,
    nodes: &[SourceNode],
    name: &str,
) -> Vec<IpNet> {
    nodes
        .iter()
        .filter_map(|node| {
            if let SourceValue::List(_) | SourceValue::Map(_) = node.value {
                reader.diagnostics.add(
                    node.location,
                    format!("`{name}` must have networks, found {}", describe_node(node)),
                    "write them as `10.0.0.0/8` or `192.0.2.7`",
                );
                return None;
            }
            reader.parse(node, name, grammar::parse_network)
        })
        .collect()
}
