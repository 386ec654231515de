//! `key`: whose quota it is.
//!
//! Must not know: how keys are made of a request.

use serde_json::{Value as Json, json};

use super::Reader;
use super::field::{Absent, Field, about, put};
use super::fields::FieldReader;
use super::scalar::found;
use crate::attributes::Attribute;
use crate::model::{KeyPart, Missing};
use crate::schema::{enumeration, object, of, one_or_list};
use crate::source::{At, SourceLocation, SourceNode, SourceValue};

/// As many parts as anybody needs; each costs room in every key.
const MOST_PARTS: usize = 8;

/// What a missing attribute may mean.
pub(crate) const MISSING: [(&str, Missing); 3] = [
    ("shared", Missing::Shared),
    ("skip", Missing::Skip),
    ("deny", Missing::Deny),
];

/// A part of a key while it is read in its long form.
pub(crate) struct PartDraft {
    part: KeyPart,
    attribute: Option<At<Attribute>>,
    v4: Option<SourceLocation>,
    v6: Option<SourceLocation>,
}

/// The fields of a part of a key in its long form.
pub(crate) const PART: [Field<PartDraft>; 6] = [
    Field::new(
        "attribute",
        Absent::Required("ip"),
        "Which attribute.",
        || of("attribute"),
        |reader, node, _, draft| draft.attribute = keyed_by(reader, node),
    ),
    Field::new(
        "lower",
        Absent::Default("false"),
        "Letters A to Z count as a to z.",
        || json!({ "type": "boolean" }),
        |reader, node, name, draft| put(&mut draft.part.lower, reader.truth(node, name)),
    ),
    Field::new(
        "hash",
        Absent::Default("false"),
        "Only a keyed digest of the value is kept and shown.",
        || json!({ "type": "boolean" }),
        |reader, node, name, draft| put(&mut draft.part.hash, reader.truth(node, name)),
    ),
    Field::new(
        "v4",
        Absent::Default("32"),
        "How many leading bits of an IPv4 address count (default 32).",
        || bits(32),
        |reader, node, name, draft| {
            draft.v4 = Some(node.place);
            put(&mut draft.part.v4_bits, reader.bits(node, name, 32));
        },
    ),
    Field::new(
        "v6",
        Absent::Default("64"),
        "How many leading bits of an IPv6 address count (default 64).",
        || bits(128),
        |reader, node, name, draft| {
            draft.v6 = Some(node.place);
            put(&mut draft.part.v6_bits, reader.bits(node, name, 128));
        },
    ),
    Field::new(
        "missing",
        Absent::Means("the limit's `missing`"),
        "What it means if the attribute is absent.",
        || enumeration(&MISSING),
        |reader, node, name, draft| {
            put(&mut draft.part.missing, reader.word(node, name, &MISSING));
        },
    ),
];

fn bits(most: u8) -> Json {
    json!({ "type": "integer", "minimum": 0, "maximum": most })
}

/// The schema of a key.
pub(crate) fn schema() -> Json {
    one_or_list(&json!({ "anyOf": [of("attribute"), object(about(&PART))] }))
}

/// One name, one map, or a list of them.
pub(super) fn key(reader: &mut Reader, node: &SourceNode, missing: Missing) -> Vec<KeyPart> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
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

fn part(reader: &mut Reader, node: &SourceNode, missing: Missing) -> Option<KeyPart> {
    match &node.value {
        SourceValue::Scalar { .. } => {
            let attribute = keyed_by(reader, node)?;
            Some(KeyPart {
                missing,
                ..KeyPart::plain(attribute)
            })
        }
        SourceValue::Map(_) => long_part(reader, node, missing),
        SourceValue::Nothing | SourceValue::List(_) => {
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

fn long_part(reader: &mut Reader, node: &SourceNode, missing: Missing) -> Option<KeyPart> {
    let mut fields =
        FieldReader::open(reader, node, "a part of `key`", "{ attribute: ip, v6: 56 }")?;
    let mut draft = PartDraft {
        part: KeyPart {
            missing,
            ..KeyPart::plain(At::from(Attribute::Ip))
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
    for (name, place) in [("v4", draft.v4), ("v6", draft.v6)] {
        if let Some(place) = place
            && !is_ip
        {
            reader.report.say(
                place,
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

impl Reader {
    /// How many leading bits of an address count.
    fn bits(&mut self, node: &SourceNode, field: &str, most: u8) -> Option<u8> {
        let bits = self.number(node, field, 1, most.into())?;
        u8::try_from(bits).ok()
    }
}

/// An attribute that may be keyed by. Raw paths may not: every identifier in them would make a new key.
fn keyed_by(reader: &mut Reader, node: &SourceNode) -> Option<At<Attribute>> {
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
