//! From a request to the key of one meter: which bytes count, what absence means, and digests of what is secret or long.
//!
//! Must not know: how keys are stored, how rules are matched.

use std::hash::Hasher as _;
use std::net::IpAddr;

use siphasher::sip128::{Hasher128 as _, SipHasher24};

use super::draft::{DraftLimit, MOST_KEY_PARTS, Recipe, Why};
use super::{KeyBuffer, Keyed, MatchedRules, MeterRef, Rules, path};
use crate::attributes::{Attribute, Attributes};
use crate::model::{KeyPart, Missing};

/// A value of a key's part, before it is lower-cased or digested.
enum Value<'a> {
    Bytes(&'a [u8]),
    Address(IpAddr),
}

impl Rules {
    /// How the key of a meter is made: meters with equal recipes have the same key in every request.
    #[must_use]
    pub fn recipe(&self, meter: MeterRef) -> Option<&Recipe> {
        self.recipes.get(meter.rule)?.get(meter.meter)
    }

    /// Writes the key of a meter into the buffer; what was there before is forgotten.
    ///
    /// Where several attributes are missing and mean different things, refusing comes before not applying: leaving out one
    /// more header must not turn a refusal into a free pass.
    pub fn key(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        found: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> Keyed {
        buffer.clear();
        let Some(recipe) = self.recipe(meter) else {
            return Keyed::Here;
        };
        let mut keyed = Keyed::Here;
        for part in &recipe.parts {
            match self.part_value(&part.attribute.value, request, found) {
                Some(value) => push(Shape::of(part), &value, &self.secret, buffer),
                None => {
                    buffer.push_missing();
                    keyed = match (keyed, part.missing) {
                        (Keyed::Deny, _) | (_, Missing::Deny) => Keyed::Deny,
                        (_, Missing::Skip) => Keyed::Skip,
                        (keyed, Missing::Shared) => keyed,
                    };
                }
            }
        }
        if let Some(attribute) = &recipe.distinct {
            match self.part_value(attribute, request, found) {
                Some(Value::Bytes(path)) if *attribute == Attribute::Path => {
                    buffer.push_digest(digest_path(self.secret, path));
                }
                Some(value) => push(Shape::counted(attribute), &value, &self.secret, buffer),
                None => buffer.push_missing(),
            }
        }
        keyed
    }

    /// Writes what says where the states of a rule lie, where its policy names an attribute for that (`colocate`): the part
    /// of the meter's key that the attribute is, so that a key always lies in the same place. Answers whether it does.
    pub fn place(
        &self,
        meter: MeterRef,
        request: &dyn Attributes,
        found: &MatchedRules,
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let Some(part) = self.placing(meter) else {
            return false;
        };
        match self.part_value(&part.attribute.value, request, found) {
            Some(value) => push(Shape::of(part), &value, &self.secret, buffer),
            None => buffer.push_missing(),
        }
        true
    }

    /// Writes the same for a request with these values, in the order of the key's parts. Answers whether the rule names an
    /// attribute, and there are as many values.
    pub fn place_of<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> bool {
        buffer.clear();
        let (Some(part), Some(recipe)) = (self.placing(meter), self.recipe(meter)) else {
            return false;
        };
        let at = recipe.parts.iter().position(|one| std::ptr::eq(one, part));
        let value = at.and_then(|at| values.get(at)).map(AsRef::as_ref);
        let value = match (&part.attribute.value, value) {
            (Attribute::Ip, Some(value)) => value.parse().ok().map(Value::Address),
            (_, Some(value)) => Some(Value::Bytes(value.as_bytes())),
            (_, None) => None,
        };
        value
            .map(|value| push(Shape::of(part), &value, &self.secret, buffer))
            .is_some()
    }

    /// The part of a meter's key that says where its states lie, if its rule names one.
    #[must_use]
    pub fn placing(&self, meter: MeterRef) -> Option<&KeyPart> {
        let by = self.rules.get(meter.rule)?.colocate.as_ref()?;
        let recipe = self.recipe(meter)?;
        recipe.parts.iter().find(|part| part.attribute.value == *by)
    }

    /// Writes the key of a meter that a request with these values would have, in the order of the key's parts. `None` if
    /// there are not as many values, or if one should be an address and is none.
    pub fn key_of<T: AsRef<str>>(
        &self,
        meter: MeterRef,
        values: &[T],
        buffer: &mut KeyBuffer,
    ) -> Option<()> {
        self.recipe(meter)?.key_of(values, self.secret, buffer)
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
    ) -> Option<Value<'a>> {
        match attribute {
            Attribute::Ip => request.ip().map(Value::Address),
            other => self.value(other, request, found).map(Value::Bytes),
        }
    }
}

impl Recipe {
    /// Writes the key that a request with these values would have, so that a policy can name single keys. Values are in
    /// the order of the parts. `None` if there are not as many, or if one should be an address and is none.
    pub fn key_of<T: AsRef<str>>(
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
                Attribute::Ip => Value::Address(value.parse().ok()?),
                _ => Value::Bytes(value.as_bytes()),
            };
            push(Shape::of(part), &value, &secret, buffer);
        }
        Some(())
    }
}

/// How the bytes of a value are written.
#[derive(Clone, Copy)]
struct Shape {
    lower: bool,
    hash: bool,
    v4_bits: u8,
    v6_bits: u8,
}

impl Shape {
    fn of(part: &KeyPart) -> Self {
        Self {
            // Hosts are the same in any case, whether the transport took care of it or not.
            lower: part.lower || matches!(part.attribute.value, Attribute::Host),
            hash: part.hash,
            v4_bits: part.v4_bits,
            v6_bits: part.v6_bits,
        }
    }

    /// One of the values that distinct counting counts: always a digest, because paths and the like have no bound.
    fn counted(attribute: &Attribute) -> Self {
        Self {
            lower: *attribute == Attribute::Host,
            hash: true,
            v4_bits: 32,
            v6_bits: 64,
        }
    }
}

/// Why these keys cannot be made within the bounds.
pub(super) fn unfit(limit: &DraftLimit) -> impl Iterator<Item = Why> {
    let meters = limit.rule.meters.len();
    let recipes = limit.keys.len();
    let most = limit.keys.iter().map(|recipe| recipe.parts.len()).max();
    let parts = most
        .filter(|parts| *parts > MOST_KEY_PARTS)
        .map(Why::KeyParts);
    let count = (meters != recipes).then_some(Why::Recipes { meters, recipes });
    parts.into_iter().chain(count)
}

fn push(shape: Shape, value: &Value<'_>, secret: &[u8; 16], buffer: &mut KeyBuffer) {
    match value {
        Value::Bytes(bytes) => {
            if shape.hash || !buffer.has_room_for(bytes.len()) {
                buffer.push_digest(digest(*secret, bytes, shape.lower));
            } else {
                buffer.push_present(bytes);
                if shape.lower {
                    buffer.lower_last(bytes.len());
                }
            }
        }
        Value::Address(address) => match masked(*address, shape.v4_bits, shape.v6_bits) {
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
pub(crate) fn masked(address: IpAddr, v4_bits: u8, v6_bits: u8) -> IpAddr {
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
        let mut room = [0; path::PATH_ROOM];
        let path = path::rewritten(raw, &mut room);
        // Not all of it is there: two paths that differ further on must stay two.
        let bytes = if path.is_cut { raw } else { path.bare() };
        digest(secret, bytes, false)
    }
    match path::as_it_is(raw) {
        Some(path) => digest(secret, path.bare(), false),
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
