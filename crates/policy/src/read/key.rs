//! Reads `key`.
//!
//! Must not know: how keys are encoded.

use serde_json::{Value as Json, json};

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, field_specs, set_if_some};
use super::scalar::describe_node;
use crate::attributes::Attribute;
use crate::model::{KeyPart, OnMissing};
use crate::schema::{definition_ref, enumeration, object, one_or_list};
use crate::source::{Located, SourceLocation, SourceNode, SourceValue};

/// The maximum number of parts; each takes space in every key.
const MAX_PARTS: usize = 8;

/// The values of `missing`.
pub(crate) const MISSING: [(&str, OnMissing); 3] = [
    ("shared", OnMissing::Shared),
    ("skip", OnMissing::Skip),
    ("deny", OnMissing::Deny),
];

/// A part of a key while it is read in its long form.
pub(crate) struct PartDraft {
    part: KeyPart,
    attribute: Option<Located<Attribute>>,
    v4: Option<SourceLocation>,
    v6: Option<SourceLocation>,
}

/// The fields of a part of a key in its long form.
pub(crate) const PART: [Field<PartDraft>; 6] = [
    Field::new(
        "attribute",
        FieldDefault::Required("ip"),
        "Which attribute.",
        || definition_ref("attribute"),
        |reader, node, _, draft| draft.attribute = read_key_attribute(reader, node),
    ),
    Field::new(
        "lower",
        FieldDefault::Value("false"),
        "Lower-cases the letters A to Z.",
        || json!({ "type": "boolean" }),
        |reader, node, name, draft| set_if_some(&mut draft.part.lower, reader.boolean(node, name)),
    ),
    Field::new(
        "hash",
        FieldDefault::Value("false"),
        "Stores and shows only a keyed digest of the value.",
        || json!({ "type": "boolean" }),
        |reader, node, name, draft| set_if_some(&mut draft.part.hash, reader.boolean(node, name)),
    ),
    Field::new(
        "v4",
        FieldDefault::Value("32"),
        "The number of leading bits of an IPv4 address in the key (default 32).",
        || bits_schema(32),
        |reader, node, name, draft| {
            draft.v4 = Some(node.location);
            set_if_some(&mut draft.part.v4_bits, reader.bits(node, name, 32));
        },
    ),
    Field::new(
        "v6",
        FieldDefault::Value("64"),
        "The number of leading bits of an IPv6 address in the key (default 64).",
        || bits_schema(128),
        |reader, node, name, draft| {
            draft.v6 = Some(node.location);
            set_if_some(&mut draft.part.v6_bits, reader.bits(node, name, 128));
        },
    ),
    Field::new(
        "missing",
        FieldDefault::Description("the limit's `missing`"),
        "What to do if the attribute is absent.",
        || enumeration(&MISSING),
        |reader, node, name, draft| {
            set_if_some(
                &mut draft.part.missing,
                reader.keyword(node, name, &MISSING),
            );
        },
    ),
];

fn bits_schema(max: u8) -> Json {
    json!({ "type": "integer", "minimum": 0, "maximum": max })
}

/// The schema of a key.
pub(crate) fn schema() -> Json {
    one_or_list(&json!({ "anyOf": [definition_ref("attribute"), object(field_specs(&PART))] }))
}

/// Reads an attribute name, a map, or a list of them.
pub(super) fn read_key(
    reader: &mut TreeReader,
    node: &SourceNode,
    missing: OnMissing,
) -> Vec<KeyPart> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    if nodes.len() > MAX_PARTS {
        reader.diagnostics.add(
            node.location,
            format!("`key` has {} parts", nodes.len()),
            format!("a key has at most {MAX_PARTS}"),
        );
    }
    let mut parts: Vec<KeyPart> = Vec::new();
    for node in nodes {
        let Some(part) = read_part(reader, node, missing) else {
            continue;
        };
        if parts.iter().any(|first| first.attribute == part.attribute) {
            reader.diagnostics.add(
                part.attribute.location,
                format!("`key` names `{}` twice", part.attribute.value),
                "remove one of them",
            );
            continue;
        }
        parts.push(part);
    }
    parts
}

fn read_part(reader: &mut TreeReader, node: &SourceNode, missing: OnMissing) -> Option<KeyPart> {
    match &node.value {
        SourceValue::Scalar { .. } => {
            let attribute = read_key_attribute(reader, node)?;
            Some(KeyPart {
                missing,
                ..KeyPart::new(attribute)
            })
        }
        SourceValue::Map(_) => read_long_part(reader, node, missing),
        SourceValue::Null | SourceValue::List(_) => {
            reader.diagnostics.add(
                node.location,
                format!(
                    "a part of `key` must be an attribute, found {}",
                    describe_node(node)
                ),
                "write its name, as in `key: [ip, header.x-api-key]`",
            );
            None
        }
    }
}

fn read_long_part(
    reader: &mut TreeReader,
    node: &SourceNode,
    missing: OnMissing,
) -> Option<KeyPart> {
    let mut fields =
        FieldReader::open(reader, node, "a part of `key`", "{ attribute: ip, v6: 56 }")?;
    let mut draft = PartDraft {
        part: KeyPart {
            missing,
            ..KeyPart::new(Located::from(Attribute::Ip))
        },
        attribute: None,
        v4: None,
        v6: None,
    };
    fields.read(reader, &PART, &mut draft);
    fields.finish(reader);
    let mut part = draft.part;
    part.attribute = draft.attribute?;
    let is_ip = part.attribute.value == Attribute::Ip;
    for (name, location) in [("v4", draft.v4), ("v6", draft.v6)] {
        if let Some(location) = location
            && !is_ip
        {
            reader.diagnostics.add(
                location,
                format!(
                    "`{name}` is only for `ip`, not for `{}`",
                    part.attribute.value
                ),
                format!("leave `{name}` out"),
            );
        }
    }
    if is_ip && part.lower {
        reader.diagnostics.add(
            node.location,
            "`lower` has no effect on `ip`",
            "leave `lower` out",
        );
    }
    Some(part)
}

impl TreeReader {
    /// Reads a number of leading bits of an address.
    fn bits(&mut self, node: &SourceNode, field: &str, max: u8) -> Option<u8> {
        let bits = self.number(node, field, 1, max.into())?;
        u8::try_from(bits).ok()
    }
}

/// Reads an attribute for a key. `path` is rejected, because every identifier in a path would make a new key.
fn read_key_attribute(reader: &mut TreeReader, node: &SourceNode) -> Option<Located<Attribute>> {
    let attribute = reader.attribute(node, "key")?;
    if attribute.value != Attribute::Path {
        return Some(attribute);
    }
    reader.diagnostics.add(
        node.location,
        "`key` cannot be the raw `path`: every id in a path would make a new key, so no key would reach its limit",
        "use `route`, the template that the path belongs to; list templates under `routes`",
    );
    None
}
