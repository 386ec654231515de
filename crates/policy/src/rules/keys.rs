//! From a request to the key of one meter: which bytes count, what absence means, and digests of what is secret or long.
//!
//! Must not know: how keys are stored, how rules are matched.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::draft::{DraftLimit, KeySpec, MAX_KEY_PARTS, RuleErrorKind};
use super::{KeyBuffer, KeyOutcome, MatchedRules, MeterRef, Rules, path};
use crate::attributes::{Attribute, Attributes};
use crate::model::{KeyPart, OnMissing};

/// A value of a key's part, before it is lower-cased or digested.
enum PartValue<'a> {
    Bytes(&'a [u8]),
    Address(IpAddr),
}

impl Rules {
    /// How the key of a meter is made: meters with equal recipes have the same key in every request.
    #[must_use]
    pub fn key_spec(&self, meter: MeterRef) -> Option<&KeySpec> {
        self.key_specs.get(meter.rule)?.get(meter.meter)
    }

    /// Writes the key of a meter into the buffer; what was there before is forgotten.
    ///
    /// Where several attributes are missing and mean different things, refusing comes before not applying: leaving out one
    /// more header must not turn a refusal into a free pass.
    pub fn write_key(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        found: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> KeyOutcome {
        buffer.clear();
        let Some(recipe) = self.key_spec(meter) else {
            return KeyOutcome::Complete;
        };
        let mut keyed = KeyOutcome::Complete;
        for part in &recipe.parts {
            match self.part_value(&part.attribute.value, request, found) {
                Some(value) => {
                    push_value(PartEncoding::for_part(part), &value, &self.secret, buffer)
                }
                None => {
                    buffer.push_missing();
                    keyed = match (keyed, part.missing) {
                        (KeyOutcome::Deny, _) | (_, OnMissing::Deny) => KeyOutcome::Deny,
                        (_, OnMissing::Skip) => KeyOutcome::Skip,
                        (keyed, OnMissing::Shared) => keyed,
                    };
                }
            }
        }
        if let Some(attribute) = &recipe.distinct {
            match self.part_value(attribute, request, found) {
                Some(PartValue::Bytes(path)) if *attribute == Attribute::Path => {
                    buffer.push_digest(digest_path(self.secret, path));
                }
                Some(value) => push_value(
                    PartEncoding::for_distinct(attribute),
                    &value,
                    &self.secret,
                    buffer,
                ),
                None => buffer.push_missing(),
            }
        }
        keyed
    }

    /// Writes what says where the states of a rule lie, where its policy names an attribute for that (`colocate`): the part
    /// of the meter's key that the attribute is, so that a key always lies in the same place. Answers whether it does.
    pub fn write_colocation(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        found: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let Some(part) = self.colocation_part(meter) else {
            return false;
        };
        match self.part_value(&part.attribute.value, request, found) {
            Some(value) => push_value(PartEncoding::for_part(part), &value, &self.secret, buffer),
            None => buffer.push_missing(),
        }
        true
    }

    /// Writes the same for a request with these values, in the order of the key's parts. Answers whether the rule names an
    /// attribute, and there are as many values.
    pub fn write_colocation_of_values<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let (Some(part), Some(recipe)) = (self.colocation_part(meter), self.key_spec(meter)) else {
            return false;
        };
        let at = recipe.parts.iter().position(|one| std::ptr::eq(one, part));
        let value = at.and_then(|at| values.get(at)).map(AsRef::as_ref);
        let value = match (&part.attribute.value, value) {
            (Attribute::Ip, Some(value)) => value.parse().ok().map(PartValue::Address),
            (_, Some(value)) => Some(PartValue::Bytes(value.as_bytes())),
            (_, None) => None,
        };
        value
            .map(|value| push_value(PartEncoding::for_part(part), &value, &self.secret, buffer))
            .is_some()
    }

    /// The part of a meter's key that says where its states lie, if its rule names one.
    #[must_use]
    pub fn colocation_part(&self, meter: MeterRef) -> Option<&KeyPart> {
        let by = self.rules.get(meter.rule)?.colocate.as_ref()?;
        let recipe = self.key_spec(meter)?;
        recipe.parts.iter().find(|part| part.attribute.value == *by)
    }

    /// Writes the key of a meter that a request with these values would have, in the order of the key's parts. `None` if
    /// there are not as many values, or if one should be an address and is none.
    pub fn write_key_of_values<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> Option<()> {
        self.key_spec(meter)?
            .write_key_of_values(values, self.secret, buffer)
    }

    /// The keyed digest of any bytes: the same in all processes that share the secret, and of no use without it.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> [u8; 16] {
        digest(self.secret, bytes, false)
    }

    fn part_value<'a>(
        &'a self,
        attribute: &Attribute,
        request: &'a dyn Attributes,
        found: &MatchedRules,
    ) -> Option<PartValue<'a>> {
        match attribute {
            Attribute::Ip => request.ip().map(PartValue::Address),
            other => self
                .attribute_value(other, request, found)
                .map(PartValue::Bytes),
        }
    }
}

impl KeySpec {
    /// Writes the key that a request with these values would have, so that a policy can name single keys. Values are in
    /// the order of the parts. `None` if there are not as many, or if one should be an address and is none.
    pub fn write_key_of_values<T: AsRef<str>>(
        &self,
        values: &[T],
        secret: [u8; 16],
        buffer: &mut KeyBuffer,
    ) -> Option<()> {
        buffer.clear();
        if self.parts.len() != values.len() {
            return None;
        }
        for (part, value) in self.parts.iter().zip(values) {
            let value = value.as_ref();
            let value = match part.attribute.value {
                Attribute::Ip => PartValue::Address(value.parse().ok()?),
                _ => PartValue::Bytes(value.as_bytes()),
            };
            push_value(PartEncoding::for_part(part), &value, &secret, buffer);
        }
        Some(())
    }
}

/// How the bytes of a value are written.
#[derive(Clone, Copy)]
struct PartEncoding {
    lower: bool,
    hash: bool,
    v4_bits: u8,
    v6_bits: u8,
}

impl PartEncoding {
    fn for_part(part: &KeyPart) -> Self {
        Self {
            // Hosts are the same in any case, whether the transport took care of it or not.
            lower: part.lower || matches!(part.attribute.value, Attribute::Host),
            hash: part.hash,
            v4_bits: part.v4_bits,
            v6_bits: part.v6_bits,
        }
    }

    /// One of the values that distinct counting counts: always a digest, because paths and the like have no bound.
    fn for_distinct(attribute: &Attribute) -> Self {
        Self {
            lower: *attribute == Attribute::Host,
            hash: true,
            v4_bits: 32,
            v6_bits: 64,
        }
    }
}

/// Why these keys cannot be made within the bounds.
pub(super) fn key_errors(limit: &DraftLimit) -> impl Iterator<Item = RuleErrorKind> {
    let meters = limit.rule.meters.len();
    let recipes = limit.keys.len();
    let most = limit.keys.iter().map(|recipe| recipe.parts.len()).max();
    let parts = most
        .filter(|parts| *parts > MAX_KEY_PARTS)
        .map(RuleErrorKind::KeyParts);
    let count = (meters != recipes).then_some(RuleErrorKind::KeySpecCount {
        meters,
        key_specs: recipes,
    });
    parts.into_iter().chain(count)
}

fn push_value(
    shape: PartEncoding,
    value: &PartValue<'_>,
    secret: &[u8; 16],
    buffer: &mut KeyBuffer,
) {
    match value {
        PartValue::Bytes(bytes) => {
            if shape.hash || !buffer.has_room_for(bytes.len()) {
                buffer.push_digest(digest(*secret, bytes, shape.lower));
            } else {
                buffer.push_present(bytes);
                if shape.lower {
                    buffer.lowercase_last(bytes.len());
                }
            }
        }
        PartValue::Address(address) => match mask_address(*address, shape.v4_bits, shape.v6_bits) {
            IpAddr::V4(v4) => push_address(&v4.octets(), shape.hash, secret, buffer),
            IpAddr::V6(v6) => push_address(&v6.octets(), shape.hash, secret, buffer),
        },
    }
}

#[inline]
fn push_address(octets: &[u8], hash: bool, secret: &[u8; 16], buffer: &mut KeyBuffer) {
    if hash || !buffer.has_room_for(octets.len()) {
        buffer.push_digest(digest(*secret, octets, false));
    } else {
        buffer.push_present(octets);
    }
}

/// The leading bits of an address; one of IPv4 that is written as IPv6 is one of IPv4.
pub(crate) fn mask_address(address: IpAddr, v4_bits: u8, v6_bits: u8) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(v4) => {
            let drop = 32_u32.saturating_sub(v4_bits.into());
            let mask = u32::MAX.checked_shl(drop).unwrap_or(0);
            IpAddr::V4((v4.to_bits() & mask).into())
        }
        IpAddr::V6(v6) => {
            let drop = 128_u32.saturating_sub(v6_bits.into());
            let mask = u128::MAX.checked_shl(drop).unwrap_or(0);
            IpAddr::V6((v6.to_bits() & mask).into())
        }
    }
}

/// The digest of a path in its one spelling, so that spelling it differently does not make it another one.
fn digest_path(secret: [u8; 16], raw: &[u8]) -> [u8; 16] {
    #[cold]
    #[inline(never)]
    fn rewritten(secret: [u8; 16], raw: &[u8]) -> [u8; 16] {
        let mut room = [0; path::PATH_CAPACITY];
        let path = path::normalize(raw, &mut room);
        // Not all of it is there: two paths that differ further on must stay two.
        let bytes = if path.is_truncated {
            raw
        } else {
            path.without_trailing_slash()
        };
        digest(secret, bytes, false)
    }
    match path::already_normalized(raw) {
        Some(path) => digest(secret, path.without_trailing_slash(), false),
        None => rewritten(secret, raw),
    }
}

/// SipHash-2-4 with 128 bits, keyed by the secret.
fn digest(secret: [u8; 16], bytes: &[u8], lower: bool) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(&secret);
    if lower {
        // A value may be long, and a lower-cased copy of it has no bound; a few bytes at a time need none.
        for chunk in bytes.chunks(64) {
            let mut copy = [0; 64];
            if let Some(copy) = copy.get_mut(..chunk.len()) {
                copy.copy_from_slice(chunk);
                copy.make_ascii_lowercase();
                hasher.write(copy);
            }
        }
    } else {
        hasher.write(bytes);
    }
    hasher.finish128().as_bytes()
}
