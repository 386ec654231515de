//! `key`: whose quota it is.
//!
//! Must not know: how keys are made of a request.

use super::Reader;
use super::fields::Fields;
use super::scalar::found;
use crate::attributes::Attribute;
use crate::model::{KeyPart, Missing};
use crate::source::{At, Node, Value};

/// As many parts as anybody needs; each costs room in every key.
const MOST_PARTS: usize = 8;

/// What a missing attribute may mean.
pub(super) const MISSING: [(&str, Missing); 3] = [
    ("shared", Missing::Shared),
    ("skip", Missing::Skip),
    ("deny", Missing::Deny),
];

/// One name, one map, or a list of them.
pub(super) fn key(reader: &mut Reader, node: &Node, missing: Missing) -> Vec<KeyPart> {
    let nodes = match &node.value {
        Value::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if nodes.len() > MOST_PARTS {
        reader.report.say(
            node.place,
            format!("`key` has {} parts", nodes.len()),
            format!("a key has at most {MOST_PARTS}"),
        );
    }
    let mut parts: Vec<KeyPart> = Vec::new();
    for node in nodes {
        let Some(part) = part(reader, node, missing) else {
            continue;
        };
        if parts.iter().any(|first| first.attribute == part.attribute) {
            reader.report.say(
                part.attribute.place,
                format!("`key` names `{}` twice", part.attribute.value),
                "leave one out: the second adds nothing",
            );
            continue;
        }
        parts.push(part);
    }
    parts
}

fn part(reader: &mut Reader, node: &Node, missing: Missing) -> Option<KeyPart> {
    match &node.value {
        Value::Scalar { .. } => {
            let attribute = keyed_by(reader, node)?;
            Some(KeyPart {
                missing,
                ..KeyPart::plain(attribute)
            })
        }
        Value::Map(_) => long_part(reader, node, missing),
        Value::Nothing | Value::List(_) => {
            reader.report.say(
                node.place,
                format!(
                    "a part of `key` must be an attribute, found {}",
                    found(node)
                ),
                "write its name, as in `key: [ip, header.x-api-key]`",
            );
            None
        }
    }
}

fn long_part(reader: &mut Reader, node: &Node, missing: Missing) -> Option<KeyPart> {
    let mut fields = Fields::open(reader, node, "a part of `key`", "{ attribute: ip, v6: 56 }")?;
    let attribute = fields
        .require(reader, "attribute", "ip")
        .and_then(|node| keyed_by(reader, node));
    let mut part = KeyPart {
        missing,
        ..KeyPart::plain(At::from(Attribute::Ip))
    };
    if let Some(node) = fields.take(reader, "lower") {
        part.lower = reader.truth(node, "lower").unwrap_or_default();
    }
    if let Some(node) = fields.take(reader, "hash") {
        part.hash = reader.truth(node, "hash").unwrap_or_default();
    }
    let v4 = fields.take(reader, "v4");
    let v6 = fields.take(reader, "v6");
    if let Some(bits) = v4.and_then(|node| reader.number(node, "v4", 1, 32)) {
        part.v4_bits = u8::try_from(bits).unwrap_or(32);
    }
    if let Some(bits) = v6.and_then(|node| reader.number(node, "v6", 1, 128)) {
        part.v6_bits = u8::try_from(bits).unwrap_or(128);
    }
    if let Some(node) = fields.take(reader, "missing") {
        part.missing = reader.word(node, "missing", &MISSING).unwrap_or(missing);
    }
    fields.finish(reader);
    part.attribute = attribute?;
    let is_ip = part.attribute.value == Attribute::Ip;
    for (name, node) in [("v4", v4), ("v6", v6)] {
        if let Some(node) = node
            && !is_ip
        {
            reader.report.say(
                node.place,
                format!(
                    "`{name}` is for `ip`, and `{}` is no address",
                    part.attribute.value
                ),
                format!("leave `{name}` out"),
            );
        }
    }
    if is_ip && part.lower {
        reader.report.say(
            node.place,
            "`lower` says nothing about `ip`: addresses have no letters to lower",
            "leave `lower` out",
        );
    }
    Some(part)
}

/// An attribute that may be keyed by. Raw paths may not: every identifier in them would make a new key.
fn keyed_by(reader: &mut Reader, node: &Node) -> Option<At<Attribute>> {
    let attribute = reader.attribute(node, "key")?;
    if attribute.value != Attribute::Path {
        return Some(attribute);
    }
    reader.report.say(
        node.place,
        "`key` cannot be the raw `path`: every id in a path would be a key of its own, and no limit would ever be reached",
        "use `route`, the template that the path belongs to; list templates under `routes`",
    );
    None
}
