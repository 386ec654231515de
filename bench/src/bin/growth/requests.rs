//! Requests with a key, and with fields that policies match by; the same in every run.
//!
//! Must not know: what is measured.

use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes};

/// A request as a server has it.
pub(crate) struct KeyedRequest {
    pub(crate) key: Vec<u8>,
    pub(crate) path: String,
    /// The field that only some limits want.
    pub(crate) tenant: String,
}

impl KeyedRequest {
    pub(crate) fn new(key: impl Into<Vec<u8>>) -> Self {
        Self {
            key: key.into(),
            path: "/v1/service-00000/items/4711".to_owned(),
            tenant: "tenant-00000".to_owned(),
        }
    }
}

impl Attributes for KeyedRequest {
    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        match attribute {
            Attribute::Method => Some(b"GET"),
            Attribute::Path => Some(self.path.as_bytes()),
            Attribute::Header(name) if &**name == "x-api-key" => Some(&self.key),
            Attribute::Header(name) if &**name == "x-tenant" => Some(self.tenant.as_bytes()),
            // The header whose presence one limit of many wants.
            Attribute::Header(name) if **name == *self.tenant => Some(&self.key),
            _ => None,
        }
    }

    /// As transports do: otherwise the rules would ask for every header that a limit wants.
    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        if family == AttributeFamily::Header {
            let names = ["x-api-key", "x-tenant", &self.tenant];
            names.into_iter().for_each(visit);
        }
        true
    }
}

/// A small generator with a fixed seed (splitmix64).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) const fn new() -> Self {
        Self(7)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// A number below `count`.
    pub(crate) fn below(&mut self, count: usize) -> usize {
        let product = u128::from(self.next()) * u128::try_from(count).unwrap_or(1);
        usize::try_from(product >> 64).unwrap_or(0)
    }

    /// A rank below `count` with a probability in proportion to 1/rank (s = 1), by the inverse of the logarithm that the
    /// harmonic sum is close to.
    pub(crate) fn zipf(&mut self, count: usize) -> usize {
        let unit = f64::from(u32::try_from(self.next() >> 32).unwrap_or(0)) / f64::from(u32::MAX);
        let most = f64::from(u32::try_from(count).unwrap_or(u32::MAX));
        let rank = most.powf(unit);
        // Ranks are scattered over the numbers, so that neighbours in popularity are not neighbours by name.
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rank from 1 to the count"
        )]
        let rank = rank as usize;
        rank.saturating_sub(1).wrapping_mul(61_803) % count.max(1)
    }
}

/// The key of a number, of so many bytes and at least eight: digits after a text that all keys begin with.
pub(crate) fn key(number: usize, length: usize) -> Vec<u8> {
    let digits = format!("{number:08}");
    let text = b"user".iter().copied().cycle();
    let mut key: Vec<u8> = text.take(length.saturating_sub(digits.len())).collect();
    key.extend_from_slice(digits.as_bytes());
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_have_their_length_and_differ() {
        assert_eq!(key(42, 12), b"user00000042");
        assert_eq!(key(42, 512).len(), 512);
        assert_ne!(key(1, 512), key(10, 512));
    }

    #[test]
    fn the_first_rank_is_the_most_frequent() {
        let mut random = Random::new();
        let mut counts = vec![0; 1_000];
        (0..100_000).for_each(|_| counts[random.zipf(1_000)] += 1);
        let first = counts[0];
        assert!(counts.iter().all(|count| *count <= first));
        // The least rank has 1/ln(1000) times ln 2 of all.
        assert!((8_000..12_500).contains(&first), "{first}");
        assert!((0..1_000).all(|_| random.below(10) < 10));
    }
}
