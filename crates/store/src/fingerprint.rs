//! A key's stand-in of fixed size, which nobody outside the process can predict.
//!
//! Must not know: where the fingerprint is kept.

use std::hash::{BuildHasher, Hasher, RandomState};

/// 128 bits that stand for a key. Two keys share one with probability 2^-128 a pair, whoever chose them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub(crate) struct Fingerprint {
    high: u64,
    low: u64,
}

impl Fingerprint {
    /// Which of `count` groups the key belongs to, evenly.
    pub(crate) fn group(self, count: usize) -> usize {
        // The high half of the product of a uniform word and `count` is uniform below `count`.
        let product = u128::from(self.high).saturating_mul(count as u128);
        usize::try_from(product >> 64).unwrap_or(0)
    }
}

/// The process's secret: without it no caller can aim at a slot or at another caller's fingerprint.
#[derive(Clone, Debug, Default)]
pub(crate) struct Secret {
    // std's keyed hash gives 64 bits, so there are two of them, each with its own key from the system's randomness.
    high: RandomState,
    low: RandomState,
}

impl Secret {
    pub(crate) fn fingerprint(&self, key: &[u8]) -> Fingerprint {
        let half = |state: &RandomState| {
            let mut hasher = state.build_hasher();
            hasher.write(key);
            hasher.finish()
        };
        Fingerprint {
            high: half(&self.high),
            low: half(&self.low),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_key_has_the_same_fingerprint_only_under_the_same_secret() {
        let (one, other) = (Secret::default(), Secret::default());
        assert_eq!(one.fingerprint(b"alice"), one.fingerprint(b"alice"));
        assert_ne!(one.fingerprint(b"alice"), other.fingerprint(b"alice"));
        assert_ne!(one.fingerprint(b"alice"), one.fingerprint(b"bob"));
        assert_ne!(one.fingerprint(b""), one.fingerprint(b"\0"));
        let half = one.fingerprint(b"alice");
        assert_ne!(half.high, half.low, "two keys, not one twice");
    }

    #[test]
    fn groups_are_within_bounds_and_evenly_used() {
        let secret = Secret::default();
        let mut used = [0_u32; 16];
        for n in 0..16_000_u32 {
            used[secret.fingerprint(&n.to_le_bytes()).group(16)] += 1;
        }
        // 1,000 each, give or take; eight standard deviations are 250.
        assert!(used.iter().all(|n| n.abs_diff(1_000) < 250), "{used:?}");
    }
}
