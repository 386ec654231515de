//! The key that authenticates fleet messages, and the signed form of entries.
//!
//! A signed body is the JSON object with three more fields at its end, which versions without signatures ignore:
//! `{…,"seq":7,"ttl":0,"mac":"…"}`. The code covers the fleet's name, the entry's name, its kind and everything before
//! `mac`. Must not know: registers, which messages are accepted.

use std::fmt;

use ring::hmac;
use tollgate_core::Nanos;
use tollgate_store::register::{FleetName, Heartbeat, RegisterEntry, TargetUsage};

use crate::secret::Secret;

/// Derives the key from the fleet's secret. If it changes, nodes of two versions reject each other's messages.
const PURPOSE: &[u8] = b"tollgate fleet messages";
const SEQUENCE_FIELD: &str = ",\"seq\":";
const TTL_FIELD: &str = ",\"ttl\":";
const MAC_FIELD: &str = ",\"mac\":\"";
const END: &str = "\"}";

/// A message authentication code: HMAC-SHA-256, truncated to 128 bits.
pub(super) type Mac = [u8; 16];

/// The key of one fleet's messages.
pub(super) struct MessageKey {
    key: hmac::Key,
    fleet: FleetName,
}

/// What the signature of an entry proves.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum OpenedEntry {
    /// A holder of the secret wrote it.
    Signed(SignedBody),
    /// It has no signature.
    Unsigned,
    /// Its signature is wrong: it was changed, or it belongs to another name, fleet or secret.
    Forged,
}

/// The content of an entry with a valid signature.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SignedBody {
    pub(super) sequence: u64,
    /// The time to live when it was signed; `None` if it does not expire.
    pub(super) ttl: Option<Nanos>,
    pub(super) mac: Mac,
    /// The body without its signature.
    pub(super) body: Box<[u8]>,
}

impl MessageKey {
    pub(super) fn new(secret: Secret, fleet: FleetName) -> Self {
        let derivation = hmac::Key::new(hmac::HMAC_SHA256, &secret.bytes());
        let derived = hmac::sign(&derivation, PURPOSE);
        Self {
            key: hmac::Key::new(hmac::HMAC_SHA256, derived.as_ref()),
            fleet,
        }
    }

    /// The code of a heartbeat. The load is left out: it changes no decision, and later versions may append fields to it.
    pub(super) fn heartbeat_mac(&self, heartbeat: &Heartbeat, sequence: u64) -> Mac {
        let numbers = [
            heartbeat.node.0,
            heartbeat.secret_fingerprint,
            heartbeat.policy_fingerprint,
            heartbeat.generation,
            sequence,
        ];
        let numbers: Vec<u8> = numbers.into_iter().flat_map(u64::to_be_bytes).collect();
        self.mac(&[b"heartbeat", &numbers, heartbeat.version.as_bytes()])
    }

    /// The code of a heartbeat's usage. The sequence number makes it part of one heartbeat.
    pub(super) fn usage_mac(&self, heartbeat: &Heartbeat, sequence: u64) -> Mac {
        let numbers = |usage: &TargetUsage| {
            let counts = [usage.capacity, usage.critical, usage.others].map(u64::from);
            let [capacity, critical, others] = counts;
            [usage.target, capacity, critical, others]
        };
        let targets = heartbeat.usage.targets.iter().flat_map(numbers);
        let numbers = [heartbeat.node.0, sequence].into_iter().chain(targets);
        let numbers: Vec<u8> = numbers.flat_map(u64::to_be_bytes).collect();
        self.mac(&[b"usage", &numbers])
    }

    /// The signed form of a body, which must be a JSON object with at least one field.
    pub(super) fn sign_entry(
        &self,
        name: &str,
        body: &[u8],
        is_tombstone: bool,
        sequence: u64,
        ttl: Option<Nanos>,
    ) -> Option<Box<[u8]>> {
        let mut signed = body.strip_suffix(b"}")?.to_vec();
        let ttl = ttl.map_or(0, |ttl| ttl.as_nanos().div_ceil(1_000_000).max(1));
        signed.extend(format!("{SEQUENCE_FIELD}{sequence}{TTL_FIELD}{ttl}").into_bytes());
        let mac = self.entry_mac(name, is_tombstone, &signed);
        let mac = u128::from_be_bytes(mac);
        signed.extend(format!("{MAC_FIELD}{mac:032x}{END}").into_bytes());
        Some(signed.into())
    }

    /// Checks an entry's signature.
    pub(super) fn open_entry(&self, entry: &RegisterEntry) -> OpenedEntry {
        let Some((signed, mac)) = split_mac(&entry.body) else {
            return OpenedEntry::Unsigned;
        };
        let expected = self.entry_mac(&entry.name, entry.is_tombstone, signed.as_bytes());
        if !is_equal(&mac, &expected) {
            return OpenedEntry::Forged;
        }
        let fields = split_number(signed, TTL_FIELD)
            .and_then(|(rest, ttl)| Some((split_number(rest, SEQUENCE_FIELD)?, ttl)));
        let Some(((body, sequence), ttl)) = fields else {
            return OpenedEntry::Forged;
        };
        OpenedEntry::Signed(SignedBody {
            sequence,
            ttl: (ttl > 0).then(|| Nanos::from_millis(ttl)),
            mac,
            body: format!("{body}}}").into_bytes().into(),
        })
    }

    fn entry_mac(&self, name: &str, is_tombstone: bool, signed: &[u8]) -> Mac {
        let kind: &[u8] = if is_tombstone { b"removal" } else { b"entry" };
        self.mac(&[kind, name.as_bytes(), signed])
    }

    /// Every part is preceded by its length, so that no two messages have the same bytes.
    fn mac(&self, parts: &[&[u8]]) -> Mac {
        let mut context = hmac::Context::with_key(&self.key);
        let fleet = self.fleet.to_string();
        for part in [fleet.as_bytes()].iter().chain(parts) {
            context.update(&(part.len() as u64).to_be_bytes());
            context.update(part);
        }
        let tag = context.sign();
        let mut mac = Mac::default();
        for (to, from) in mac.iter_mut().zip(tag.as_ref()) {
            *to = *from;
        }
        mac
    }
}

/// Whether two codes are equal. The time does not depend on where they differ.
pub(super) fn is_equal(one: &Mac, two: &Mac) -> bool {
    let differing = one.iter().zip(two).fold(0, |all, (a, b)| all | (a ^ b));
    differing == 0
}

/// Splits a signed body into what the code covers, and the code.
fn split_mac(body: &[u8]) -> Option<(&str, Mac)> {
    let body = std::str::from_utf8(body).ok()?.strip_suffix(END)?;
    let (signed, mac) = body.split_at_checked(body.len().checked_sub(32)?)?;
    let signed = signed.strip_suffix(MAC_FIELD)?;
    let mac = u128::from_str_radix(mac, 16).ok()?;
    Some((signed, mac.to_be_bytes()))
}

fn split_number<'a>(text: &'a str, field: &str) -> Option<(&'a str, u64)> {
    let (rest, number) = text.rsplit_once(field)?;
    Some((rest, number.parse().ok()?))
}

impl fmt::Debug for MessageKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MessageKey").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = br#"{"v":1,"who":"ada","why":"x,\"seq\":9"}"#;

    fn key(secret: &str, fleet: &str) -> MessageKey {
        let secret = Secret::from_shared_text(secret.as_bytes()).unwrap();
        MessageKey::new(secret, fleet.parse().unwrap())
    }

    fn entry(name: &str, body: &[u8]) -> RegisterEntry {
        RegisterEntry {
            name: name.into(),
            body: body.into(),
            is_tombstone: false,
            expires_in: None,
            version: 1,
        }
    }

    /// If this fails, nodes of two versions reject each other's entries.
    #[test]
    fn a_signed_entry_has_the_same_bytes_in_every_version() {
        let key = key("the secret of this fleet", "default");
        let signed = key.sign_entry("switch", BODY, false, 7, None).unwrap();
        let text = std::str::from_utf8(&signed).unwrap();
        assert_eq!(
            text,
            r#"{"v":1,"who":"ada","why":"x,\"seq\":9","seq":7,"ttl":0,"mac":"a48451897aa95221a9c71b1c9b832a55"}"#
        );
        let ttl = Some(Nanos::from_millis(1_500));
        let signed = key.sign_entry("switch", BODY, false, 8, ttl).unwrap();
        let OpenedEntry::Signed(opened) = key.open_entry(&entry("switch", &signed)) else {
            panic!("the signature is valid");
        };
        assert_eq!((opened.sequence, opened.ttl), (8, ttl));
        assert_eq!(&*opened.body, BODY);
    }

    #[test]
    fn every_changed_part_of_an_entry_breaks_its_signature() {
        let own = key("the secret of this fleet", "default");
        let signed = own.sign_entry("switch", BODY, false, 7, None).unwrap();
        let opened = |name: &str, body: &[u8]| own.open_entry(&entry(name, body));
        assert!(matches!(opened("switch", &signed), OpenedEntry::Signed(_)));
        assert_eq!(opened("switch/api", &signed), OpenedEntry::Forged);
        let removal = RegisterEntry {
            is_tombstone: true,
            ..entry("switch", &signed)
        };
        assert_eq!(own.open_entry(&removal), OpenedEntry::Forged);
        for other in [
            key("the secret of other fleets", "default"),
            key("the secret of this fleet", "staging"),
        ] {
            let forged = other.open_entry(&entry("switch", &signed));
            assert_eq!(forged, OpenedEntry::Forged);
        }
        for at in 0..signed.len() {
            let mut changed = signed.to_vec();
            changed[at] ^= 1;
            let result = opened("switch", &changed);
            assert!(!matches!(result, OpenedEntry::Signed(_)), "byte {at}");
        }
        for unsigned in [BODY, b"", b"\"}", b"\xff\"}", b"{}"] {
            assert_eq!(opened("switch", unsigned), OpenedEntry::Unsigned);
        }
        assert_eq!(own.sign_entry("switch", b"", false, 1, None), None);
    }
}
