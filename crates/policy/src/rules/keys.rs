//! Encodes the key of a meter from a request: which bytes are used, missing attributes, and digests of secret or long
//! values.
//!
//! Must not know: how keys are stored, how rules are matched.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::credentials;
use super::draft::{DraftLimit, KeySpec, MAX_KEY_PARTS, RuleErrorKind};
use super::{KeyBuffer, KeyOutcome, MatchedRules, MeterRef, Rules, host};
use crate::attributes::{Attribute, Attributes};
use crate::model::{KeyPart, OnMissing};

/// The value of a key part, before lower-casing and digesting.
enum PartValue<'a> {
    Bytes(&'a [u8]),
    /// The canonical spelling of a value that was spelled differently.
    Canonical(Vec<u8>),
    Address(IpAddr),
}

impl<'a> PartValue<'a> {
    fn from_value(attribute: &Attribute, value: &'a [u8]) -> Self {
        if credentials::is_credentials(attribute)
            && let Some(canonical) = credentials::canonical(value)
        {
            return Self::Canonical(canonical);
        }
        Self::Bytes(value)
    }
}

impl Rules {
    /// The key spec of a meter. Meters with equal specs have the same key for every request.
    #[must_use]
    pub fn key_spec(&self, meter: MeterRef) -> Option<&KeySpec> {
        self.key_specs.get(meter.rule)?.get(meter.meter)
    }

    /// Writes the key of a meter into the buffer, replacing its content.
    ///
    /// If several attributes are missing, `deny` comes before `skip`, so that omitting one more header cannot bypass a
    /// denial.
    pub fn write_key(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        matched: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> KeyOutcome {
        buffer.clear();
        let Some(key_spec) = self.key_spec(meter) else {
            return KeyOutcome::Complete;
        };
        let mut outcome = KeyOutcome::Complete;
        for part in &key_spec.parts {
            let encoding = PartEncoding::for_part(part);
            let is_present = match &part.attribute.value {
                Attribute::Ip => match request.ip() {
                    Some(address) => {
                        push_address(encoding, address, &self.secret, buffer);
                        true
                    }
                    None => false,
                },
                other => match self.attribute_value(other, request, matched) {
                    Some(value) if !credentials::is_credentials(other) => {
                        push_bytes(encoding, value, &self.secret, buffer);
                        true
                    }
                    Some(value) => {
                        let value = PartValue::from_value(other, value);
                        push_value(encoding, &value, &self.secret, buffer);
                        true
                    }
                    None => false,
                },
            };
            if !is_present {
                buffer.push_missing();
                outcome = match (outcome, part.missing) {
                    (KeyOutcome::Deny, _) | (_, OnMissing::Deny) => KeyOutcome::Deny,
                    (_, OnMissing::Skip) => KeyOutcome::Skip,
                    (outcome, OnMissing::Shared) => outcome,
                };
            }
        }
        if let Some(attribute) = &key_spec.distinct {
            self.write_distinct(attribute, request, matched, buffer);
        }
        outcome
    }

    #[cold]
    fn write_distinct(
        &self,
        attribute: &Attribute,
        request: &dyn Attributes,
        matched: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) {
        match self.part_value(attribute, request, matched) {
            Some(value) => push_value(
                PartEncoding::for_distinct(attribute),
                &value,
                &self.secret,
                buffer,
            ),
            None => buffer.push_missing(),
        }
    }

    /// Writes the part of the meter's key that decides the cluster slot, if the rule has `colocate`. Returns whether it
    /// has.
    pub fn write_colocation(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        matched: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let Some(part) = self.colocation_part(meter) else {
            return false;
        };
        match self.part_value(&part.attribute.value, request, matched) {
            Some(value) => push_value(PartEncoding::for_part(part), &value, &self.secret, buffer),
            None => buffer.push_missing(),
        }
        true
    }

    /// Writes the same part for a request with these values, in the order of the key parts. Returns false if the rule
    /// has no `colocate` or a value is missing.
    pub fn write_colocation_of_values<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let (Some(part), Some(key_spec)) = (self.colocation_part(meter), self.key_spec(meter))
        else {
            return false;
        };
        let at = key_spec
            .parts
            .iter()
            .position(|one| std::ptr::eq(one, part));
        let value = at.and_then(|at| values.get(at)).map(AsRef::as_ref);
        let value = match (&part.attribute.value, value) {
            (Attribute::Ip, Some(value)) => value.parse().ok().map(PartValue::Address),
            (other, Some(value)) => Some(PartValue::from_value(other, value.as_bytes())),
            (_, None) => None,
        };
        value
            .map(|value| push_value(PartEncoding::for_part(part), &value, &self.secret, buffer))
            .is_some()
    }

    /// The part of a meter's key that decides the cluster slot, if the rule has `colocate`.
    #[must_use]
    pub fn colocation_part(&self, meter: MeterRef) -> Option<&KeyPart> {
        let by = self.rules.get(meter.rule)?.colocate.as_ref()?;
        let key_spec = self.key_spec(meter)?;
        key_spec
            .parts
            .iter()
            .find(|part| part.attribute.value == *by)
    }

    /// Writes the key of a meter for a request with these values, in the order of the key parts. `None` if the number
    /// of values differs or an address is invalid.
    pub fn write_key_of_values<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> Option<()> {
        self.key_spec(meter)?
            .write_key_of_values(values, self.secret, buffer)
    }

    /// A keyed digest: the same in all processes with the same secret.
    #[must_use]
    pub fn digest(&self, bytes: &[u8]) -> [u8; 16] {
        digest(self.secret, bytes, false)
    }

    fn part_value<'a>(
        &'a self,
        attribute: &Attribute,
        request: &'a dyn Attributes,
        matched: &'a MatchedRules,
    ) -> Option<PartValue<'a>> {
        match attribute {
            Attribute::Ip => request.ip().map(PartValue::Address),
            other => {
                let value = self.attribute_value(other, request, matched)?;
                Some(PartValue::from_value(other, value))
            }
        }
    }
}

impl KeySpec {
    /// Writes the key of a request with these values, in the order of the parts, for overrides. `None` if the number of
    /// values differs or an address is invalid.
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
                Attribute::Host => match host::canonical(value.as_bytes()) {
                    Some(host) => PartValue::Canonical(host.into_owned()),
                    // A host that cannot be read stays as it is.
                    None => PartValue::Bytes(value.as_bytes()),
                },
                ref other => PartValue::from_value(other, value.as_bytes()),
            };
            push_value(PartEncoding::for_part(part), &value, &secret, buffer);
        }
        Some(())
    }
}

/// How the bytes of a value are encoded.
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
            // Hosts are case-insensitive; not every transport lower-cases them.
            lower: part.lower || matches!(part.attribute.value, Attribute::Host),
            hash: part.hash,
            v4_bits: part.v4_bits,
            v6_bits: part.v6_bits,
        }
    }

    /// The encoding of a value for distinct counting: always a digest, because paths and other values have no length
    /// bound.
    fn for_distinct(attribute: &Attribute) -> Self {
        Self {
            lower: *attribute == Attribute::Host,
            hash: true,
            v4_bits: 32,
            v6_bits: 64,
        }
    }
}

/// The errors of a limit's keys.
pub(super) fn key_errors(limit: &DraftLimit) -> impl Iterator<Item = RuleErrorKind> {
    let meters = limit.rule.meters.len();
    let key_specs = limit.keys.len();
    let max_parts = limit.keys.iter().map(|key_spec| key_spec.parts.len()).max();
    let parts = max_parts
        .filter(|parts| *parts > MAX_KEY_PARTS)
        .map(RuleErrorKind::KeyParts);
    let count = (meters != key_specs).then_some(RuleErrorKind::KeySpecCount { meters, key_specs });
    parts.into_iter().chain(count)
}

#[cold]
fn push_value(
    encoding: PartEncoding,
    value: &PartValue<'_>,
    secret: &[u8; 16],
    buffer: &mut KeyBuffer,
) {
    match value {
        PartValue::Bytes(bytes) => push_bytes(encoding, bytes, secret, buffer),
        PartValue::Canonical(bytes) => push_bytes(encoding, bytes, secret, buffer),
        PartValue::Address(address) => push_address(encoding, *address, secret, buffer),
    }
}

#[inline(always)]
fn push_bytes(encoding: PartEncoding, bytes: &[u8], secret: &[u8; 16], buffer: &mut KeyBuffer) {
    if encoding.hash || !buffer.has_room_for(bytes.len()) {
        buffer.push_digest(digest(*secret, bytes, encoding.lower));
    } else {
        buffer.push_present(bytes);
        if encoding.lower {
            buffer.lowercase_last(bytes.len());
        }
    }
}

#[inline(always)]
fn push_address(
    encoding: PartEncoding,
    address: IpAddr,
    secret: &[u8; 16],
    buffer: &mut KeyBuffer,
) {
    match mask_address(address, encoding.v4_bits, encoding.v6_bits) {
        IpAddr::V4(v4) => push_octets(v4.octets(), encoding.hash, secret, buffer),
        IpAddr::V6(v6) => push_octets(v6.octets(), encoding.hash, secret, buffer),
    }
}

/// Compiled for both lengths, so that four bytes are one store.
#[inline(always)]
fn push_octets<const N: usize>(
    octets: [u8; N],
    hash: bool,
    secret: &[u8; 16],
    buffer: &mut KeyBuffer,
) {
    if hash || !buffer.has_room_for(N) {
        buffer.push_digest(digest(*secret, &octets, false));
    } else {
        buffer.push_present(&octets);
    }
}

/// The leading bits of an address. An IPv4-mapped IPv6 address is an IPv4 address.
#[inline]
pub(crate) fn mask_address(address: IpAddr, v4_bits: u8, v6_bits: u8) -> IpAddr {
    // Most addresses are canonical, and the conversion copies them.
    let canonical = match address {
        IpAddr::V4(_) => address,
        IpAddr::V6(v6) => v6.to_canonical(),
    };
    match canonical {
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

/// SipHash-2-4 with 128 bits, keyed by the secret.
#[inline(never)]
fn digest(secret: [u8; 16], bytes: &[u8], lower: bool) -> [u8; 16] {
    let mut hasher = SipHasher24::new_with_key(&secret);
    if lower {
        // A lower-cased copy of a long value would need a heap allocation; 64 bytes at a time do not.
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
