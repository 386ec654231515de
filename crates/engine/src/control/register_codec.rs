//! The format of operator items in the fleet's register: an entry has a name, and a JSON body with a format version.
//!
//! A change that older nodes may ignore adds a field. A change that they must not ignore raises the version; older
//! nodes then leave the entry alone. Keys are never written. Bodies contain key digests, names of limits and blocked
//! addresses. Must not know: where entries are stored.

use serde::{Deserialize, Serialize};
use tollgate_policy::grammar;
use tollgate_policy::model::ShedMechanism;

use super::attribution::{Attribution, OwnedAttribution, check_attribution};
use super::lookup::normalize_network;
use super::operator_items::OperatorItem;
use super::operator_state::{
    Block, Halt, KeyIdentity, KeyOverride, MAX_KEY_SPEC_BYTES, MAX_NAME_BYTES, MAX_QUOTA_BYTES,
    Switch,
};

/// The version of the format.
const FORMAT_VERSION: u32 = 1;

#[derive(Serialize, Deserialize)]
struct StoredEntry {
    v: u32,
    who: Box<str>,
    why: Box<str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    switch: Option<StoredSwitch>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<StoredKey>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    quota: Option<Box<str>>,
}

#[derive(Serialize, Deserialize)]
struct StoredSwitch {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    halt: Option<Halt>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    enforce: Option<u16>,
}

#[derive(Serialize, Deserialize)]
struct StoredKey {
    limit: Box<str>,
    made_of: Box<str>,
    digest: Box<str>,
}

/// The body of an item. Of `None`: the body of a removal.
pub(super) fn encode(item: Option<&OperatorItem>, attribution: &OwnedAttribution) -> Box<[u8]> {
    let key = item.and_then(OperatorItem::key).map(|key| StoredKey {
        limit: key.limit.clone(),
        made_of: key.made_of.clone(),
        digest: key.key.clone(),
    });
    let switch = match item {
        Some(OperatorItem::Switch(_, Switch { halt, enforce })) => Some(StoredSwitch {
            halt: *halt,
            enforce: *enforce,
        }),
        _ => None,
    };
    let quota = match item {
        Some(OperatorItem::Override(one)) => Some(one.quota.clone()),
        _ => None,
    };
    let body = StoredEntry {
        v: FORMAT_VERSION,
        who: attribution.who.clone(),
        why: attribution.why.clone(),
        switch,
        key,
        quota,
    };
    // Strings and numbers always serialise.
    serde_json::to_vec(&body).unwrap_or_default().into()
}

/// The attribution of a removal.
pub(super) fn decode_attribution(body: &[u8]) -> Option<OwnedAttribution> {
    let body: StoredEntry = serde_json::from_slice(body).ok()?;
    attribution_of(&body)
}

/// Decodes an entry. `None`: the entry has an unsupported version or is malformed.
pub(super) fn decode(
    name: &str,
    body: &[u8],
    until: Option<u64>,
) -> Option<(OperatorItem, OwnedAttribution)> {
    let body: StoredEntry = serde_json::from_slice(body).ok()?;
    let signature = attribution_of(&body)?;
    let (kind, rest) = name.split_once('/').unwrap_or((name, ""));
    let item = match kind {
        "switch" => {
            let limit = (name != kind)
                .then(|| parse_switch_name(rest))
                .transpose()
                .ok()?;
            let StoredSwitch { halt, enforce } = body.switch?;
            OperatorItem::Switch(limit, Switch { halt, enforce })
        }
        "override" => OperatorItem::Override(KeyOverride {
            key: parse_key(body.key?)?,
            quota: body.quota.filter(|quota| quota.len() <= MAX_QUOTA_BYTES)?,
            until,
        }),
        "block" => OperatorItem::Block(Block::Key {
            key: parse_key(body.key?)?,
            until,
        }),
        "address" => OperatorItem::Block(Block::Address {
            address: normalize_network(rest).ok()?,
            until,
        }),
        _ => return None,
    };
    // An item is removed by its name, so the name must match. A switch that changes nothing counts as removed.
    let says_something = !matches!(item, OperatorItem::Switch(_, to) if to == Switch::default());
    let is_enforceable = !matches!(
        item,
        OperatorItem::Switch(_, Switch { enforce: Some(share), .. }) if share > 10_000
    );
    (*item.name() == *name && says_something && is_enforceable).then_some((item, signature))
}

fn attribution_of(body: &StoredEntry) -> Option<OwnedAttribution> {
    let attribution = Attribution {
        who: &body.who,
        why: &body.why,
    };
    let is_known = body.v == FORMAT_VERSION && check_attribution(attribution).is_ok();
    is_known.then(|| OwnedAttribution::from_borrowed(attribution))
}

/// A limit has a switch, and so has each mechanism against overload.
fn parse_switch_name(name: &str) -> Result<Box<str>, ()> {
    match ShedMechanism::ALL
        .map(ShedMechanism::switch_name)
        .contains(&name)
    {
        true => Ok(name.into()),
        false => parse_limit_name(name),
    }
}

fn parse_limit_name(name: &str) -> Result<Box<str>, ()> {
    grammar::parse_name(name)
        .ok()
        .filter(|name| name.len() <= MAX_NAME_BYTES)
        .ok_or(())
}

fn parse_key(keyed: StoredKey) -> Option<KeyIdentity> {
    let key = KeyIdentity {
        limit: parse_limit_name(&keyed.limit).ok()?,
        made_of: Some(keyed.made_of).filter(|text| text.len() <= MAX_KEY_SPEC_BYTES)?,
        shown: format!("#{}", keyed.digest).into(),
        key: keyed.digest,
    };
    key.digest().is_some().then_some(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attribution() -> OwnedAttribution {
        OwnedAttribution::from_borrowed(Attribution {
            who: "ada (192.0.2.7)",
            why: "incident \"7\"",
        })
    }

    fn alice() -> KeyIdentity {
        KeyIdentity {
            limit: "api".into(),
            made_of: "header.user /32 /64;".into(),
            key: "0123456789abcdef0123456789abcdef".into(),
            shown: "#0123456789abcdef0123456789abcdef".into(),
        }
    }

    fn items() -> Vec<(OperatorItem, &'static str)> {
        let until = Some(5);
        let halt = Some(Halt::Shadow);
        let enforce = Some(2_500);
        let quota = "5/s burst 7".into();
        let address = "10.0.0.0/8".into();
        let key = r#""key":{"limit":"api","made_of":"header.user /32 /64;","digest":"0123456789abcdef0123456789abcdef"}"#;
        let of_key = |more: &str| -> &'static str { format!("{key}{more}").leak() };
        vec![
            (
                OperatorItem::Switch(
                    None,
                    Switch {
                        halt,
                        enforce: None,
                    },
                ),
                r#""switch":{"halt":"shadow"}"#,
            ),
            (
                OperatorItem::Switch(
                    Some("api".into()),
                    Switch {
                        halt: None,
                        enforce,
                    },
                ),
                r#""switch":{"enforce":2500}"#,
            ),
            (
                OperatorItem::Switch(
                    Some(ShedMechanism::Reserve.switch_name().into()),
                    Switch::halted(Halt::Off),
                ),
                r#""switch":{"halt":"off"}"#,
            ),
            (
                OperatorItem::Override(KeyOverride {
                    key: alice(),
                    quota,
                    until,
                }),
                of_key(r#","quota":"5/s burst 7""#),
            ),
            (
                OperatorItem::Block(Block::Key {
                    key: alice(),
                    until,
                }),
                of_key(""),
            ),
            (OperatorItem::Block(Block::Address { address, until }), ""),
        ]
    }

    /// If this fails, nodes of two versions cannot read each other's entries.
    #[test]
    fn items_are_encoded_the_same_in_every_version() {
        for (item, inside) in items() {
            let body = String::from_utf8(encode(Some(&item), &attribution()).into()).unwrap();
            let comma = if inside.is_empty() { "" } else { "," };
            let head = r#"{"v":1,"who":"ada (192.0.2.7)","why":"incident \"7\"""#;
            assert_eq!(body, format!("{head}{comma}{inside}}}"));
            let read = decode(&item.name(), body.as_bytes(), item.until());
            assert_eq!(read, Some((item, attribution())));
        }
        let gone = encode(None, &attribution());
        assert_eq!(decode_attribution(&gone), Some(attribution()));
    }

    #[test]
    fn keys_are_not_written_to_the_register() {
        let mut shown = alice();
        shown.shown = "sk_live_secret".into();
        let until = None;
        let item = OperatorItem::Block(Block::Key { key: shown, until });
        let body = String::from_utf8(encode(Some(&item), &attribution()).into()).unwrap();
        assert!(!body.contains("sk_live_secret") && !item.name().contains("sk_live_secret"));
    }

    #[test]
    fn unknown_fields_are_ignored_and_entries_of_a_later_version_are_left_alone() {
        let switch = |body: &str| decode("switch", body.as_bytes(), None);
        let known = r#"{"v":1,"who":"a","why":"b","switch":{"halt":"off","note":1},"more":[]}"#;
        assert!(switch(known).is_some(), "unknown fields are ignored");
        for unknown in [
            r#"{"v":2,"who":"a","why":"b","switch":{"halt":"off"}}"#,
            r#"{"v":1,"who":"a","why":"b","switch":{"halt":"tomorrow"}}"#,
            r#"{"v":1,"who":"a","why":"b","switch":{"enforce":10001}}"#,
            r#"{"v":1,"who":"a","why":"b","switch":{}}"#,
            r#"{"v":1,"who":"a","why":"b"}"#,
            r#"{"v":1,"who":"a\n","why":"b","switch":{"halt":"off"}}"#,
            r#"{"v":1,"switch":{"halt":"off"}}"#,
            "",
            "[]",
            "\u{0}",
        ] {
            assert_eq!(switch(unknown), None, "{unknown}");
        }
        let block = encode(Some(&items()[4].0), &attribution());
        let name = items()[4].0.name();
        assert!(decode(&name, &block, None).is_some());
        assert_eq!(decode(&name.replace("api", "other"), &block, None), None);
        assert_eq!(
            decode("limit/api", &block, None),
            None,
            "an unknown kind of entry"
        );
        assert_eq!(
            decode("address/10.0.0.1/8", &encode(None, &attribution()), None),
            None
        );
        assert_eq!(
            decode("address/x", &encode(None, &attribution()), None),
            None
        );
    }
}
