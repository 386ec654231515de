//! Reads the values of conditions: lists of networks, globs, hosts, paths and other texts.
//!
//! Must not know: how requests are matched.

use super::TreeReader;
use super::scalar::describe_node;
use crate::attributes::Attribute;
use crate::grammar::{self, GrammarError, nearest_name, quote};
use crate::model::{IpNet, Test};
use crate::rules::host;
use crate::source::{SourceNode, SourceValue};

/// `{ in: office }`: the networks of one or more lists.
pub(super) fn read_in_lists(
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
                format!("unknown list {}", quote(wanted)),
                help,
            );
            return None;
        };
        networks.extend(list.iter().copied());
    }
    Some(Test::Within(networks))
}

pub(super) fn read_globs(
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

pub(super) fn read_values(
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
                format!("`{name}`: `{text}` cannot be in a list of values"),
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
    let port = text.rsplit_once(':').filter(|(name, port)| {
        let is_name = !name.contains(':') || name.ends_with(']');
        is_name && port.bytes().all(|b| b.is_ascii_digit())
    });
    if let Some((name, _)) = port {
        return Err(GrammarError::with_help(
            format!(
                "{} has a port, and hosts are compared without ports",
                quote(text)
            ),
            format!("write {}", quote(name)),
        ));
    }
    if text.is_empty() || text.contains(['/', ' ']) {
        return Err(GrammarError::with_help(
            format!("{} is not a host", quote(text)),
            "write a name such as `api.example.com`",
        ));
    }
    Ok(canonical_host(text))
}

/// A host as it is compared: in lower case, an IPv6 address in its one spelling.
pub(super) fn canonical_host(text: &str) -> Box<str> {
    let canonical = match text.contains(':') {
        true => host::canonical(text.as_bytes()),
        false => None,
    };
    let canonical = canonical.map(|host| String::from_utf8_lossy(&host).into_owned());
    canonical
        .unwrap_or_else(|| text.to_ascii_lowercase())
        .into()
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

/// Parses all values with the same grammar; `None` if any is invalid.
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

/// Reads networks. Invalid ones are reported and skipped.
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
