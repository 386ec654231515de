//! Reads which tokens are accepted.
//!
//! Must not know: how signatures are verified.

use serde_json::json;

use super::TreeReader;
use super::field_reader::FieldReader;
use super::field_spec::{Field, FieldDefault, set_if_some};
use crate::attributes::Attribute;
use crate::grammar;
use crate::model::{JwkMembers, JwtSettings};
use crate::schema::{definition_ref, non_empty_list_of, one_or_list};
use crate::source::{Located, SourceNode, SourceValue};

/// The members of a JSON Web Key that only its owner may know.
const SECRET_MEMBERS: [&str; 2] = ["k", "d"];

/// The fields of `jwt`.
pub(crate) const JWT: [Field<JwtSettings>; 7] = [
    Field::new(
        "keys_file",
        FieldDefault::None,
        "A file with a JWK Set, read again when it changes. The path is absolute, or relative to the folder that the server was started in.",
        || json!({ "type": "string" }),
        |reader, node, name, jwt| {
            let path = reader.text(node, name).filter(|path| !path.is_empty());
            jwt.keys_file = path.map(|path| Located::new(path.into(), node.location));
        },
    ),
    Field::new(
        "keys",
        FieldDefault::None,
        "Public keys as JWK members: `{ kty: OKP, crv: Ed25519, kid: a, x: … }`. Secret keys belong in `keys_file`.",
        || non_empty_list_of(&json!({ "type": "object", "required": ["kty"] })),
        read_keys,
    ),
    Field::new(
        "issuers",
        FieldDefault::Description("any"),
        "The accepted values of `iss`.",
        || one_or_list(&json!({ "type": "string" })),
        |reader, node, name, jwt| {
            set_if_some(&mut jwt.issuers, read_texts(reader, node, name));
        },
    ),
    Field::new(
        "audiences",
        FieldDefault::Description("any"),
        "The accepted values of `aud`. A token needs one of them.",
        || one_or_list(&json!({ "type": "string" })),
        |reader, node, name, jwt| {
            set_if_some(&mut jwt.audiences, read_texts(reader, node, name));
        },
    ),
    Field::new(
        "from",
        FieldDefault::Value("header.authorization"),
        "What carries the token: a header, a cookie, or an entry of a descriptor. `Bearer ` before it is left out.",
        || definition_ref("attribute"),
        read_from,
    ),
    Field::new(
        "leeway",
        FieldDefault::Value("30s"),
        "By how much the clocks of issuer and server may differ; at most 5m.",
        || definition_ref("duration"),
        |reader, node, name, jwt| {
            let leeway = reader.parse(node, name, grammar::parse_duration);
            if leeway.is_some_and(|leeway| leeway > JwtSettings::MAX_LEEWAY) {
                reader.diagnostics.add(
                    node.location,
                    "`leeway` is longer than 5 minutes",
                    "an expired token is accepted for this long; synchronise the clocks instead",
                );
                return;
            }
            set_if_some(&mut jwt.leeway, leeway);
        },
    ),
    Field::new(
        "max_bytes",
        FieldDefault::Value("8192"),
        "Longer tokens are not verified: their claims are absent.",
        || definition_ref("number"),
        |reader, node, name, jwt| {
            let bytes = reader.number(node, name, 64, 65_536);
            set_if_some(
                &mut jwt.max_bytes,
                bytes.and_then(|bytes| u32::try_from(bytes).ok()),
            );
        },
    ),
];

/// `jwt`: which tokens are accepted.
pub(super) fn read_jwt(reader: &mut TreeReader, node: &SourceNode) -> Option<JwtSettings> {
    let example = "jwt: { keys_file: /etc/tollgate/jwks.json, audiences: api }";
    let mut fields = FieldReader::open(reader, node, "`jwt`", example)?;
    let mut jwt = JwtSettings::default();
    fields.read(reader, &JWT, &mut jwt);
    if !fields.has("keys") && !fields.has("keys_file") {
        reader.diagnostics.add(
            node.location,
            "`jwt` has neither `keys` nor `keys_file`, so no token could be verified",
            "add `keys_file:` with the path of a JWK Set",
        );
    }
    fields.finish(reader);
    Some(jwt)
}

fn read_keys(reader: &mut TreeReader, node: &SourceNode, name: &str, jwt: &mut JwtSettings) {
    let Some(nodes) = reader.list(node, name) else {
        return;
    };
    report_too_many(reader, node, name, nodes.len());
    for node in nodes {
        let example = "{ kty: OKP, crv: Ed25519, kid: a, x: … }";
        let Some(mut fields) = FieldReader::open(reader, node, "a key", example) else {
            continue;
        };
        let Some(_) = fields.require(reader, "kty", "OKP") else {
            continue;
        };
        let secret = fields
            .entries
            .iter()
            .find(|entry| SECRET_MEMBERS.contains(&&*entry.name.value));
        if let Some(secret) = secret {
            reader.diagnostics.add(
                secret.name.location,
                format!("`keys` has the secret member `{}`", secret.name.value),
                "put secret keys into `keys_file`: policies are shown to operators",
            );
            continue;
        }
        // Members with several values, such as `key_ops` and `x5c`, say nothing that is needed.
        let members: JwkMembers = fields
            .entries
            .iter()
            .filter_map(|entry| match &entry.value.value {
                SourceValue::Scalar { text, .. } => Some((entry.name.value.clone(), text.clone())),
                _ => None,
            })
            .collect();
        jwt.keys.push(Located::new(members, node.location));
    }
}

/// One text or a list of texts.
fn read_texts(reader: &mut TreeReader, node: &SourceNode, name: &str) -> Option<Vec<Box<str>>> {
    let nodes = match &node.value {
        SourceValue::List(nodes) => nodes.as_slice(),
        _ => std::slice::from_ref(node),
    };
    report_too_many(reader, node, name, nodes.len());
    if nodes.is_empty() {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` is empty, so no token would be accepted"),
            format!("add a value, or leave `{name}` out to accept any"),
        );
    }
    let texts = nodes.iter().map(|node| reader.text(node, name));
    texts.map(|text| text.map(Into::into)).collect()
}

fn report_too_many(reader: &mut TreeReader, node: &SourceNode, name: &str, count: usize) {
    let most = JwtSettings::MAX_LISTED;
    if count > most {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` has {count} entries"),
            format!("write at most {most}"),
        );
    }
}

fn read_from(reader: &mut TreeReader, node: &SourceNode, name: &str, jwt: &mut JwtSettings) {
    let Some(attribute) = reader.attribute(node, name) else {
        return;
    };
    let carries_text = matches!(
        attribute.value,
        Attribute::Header(_)
            | Attribute::Cookie(_)
            | Attribute::Descriptor(_)
            | Attribute::AnyDescriptor(_)
    );
    if !carries_text {
        reader.diagnostics.add(
            node.location,
            format!("`{name}` cannot be `{}`", attribute.value),
            "name a header, a cookie or an entry of a descriptor; queries end up in logs",
        );
        return;
    }
    jwt.from = attribute.value;
}
