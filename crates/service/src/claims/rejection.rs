//! Why a token has no claims, and how often.
//!
//! Must not know: how tokens are verified.

use std::sync::atomic::{AtomicU64, Ordering};

/// Why the claims of a token are absent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TokenRejection {
    /// It is longer than `max_bytes`.
    Oversize,
    /// It is no signed token, a name is there twice, or a claim has the wrong type.
    Malformed,
    /// No key has its `alg`, or it has extensions that have to be understood (`crit`).
    Algorithm,
    /// No key has its `kid`.
    UnknownKey,
    /// The signature is wrong.
    Signature,
    /// It has expired, or never expires.
    Expired,
    /// It is not valid yet.
    NotYetValid,
    /// Its issuer is not accepted.
    Issuer,
    /// Its audience is not accepted.
    Audience,
    /// It was not verified, because too many tokens of the same address had wrong signatures.
    Throttled,
}

impl TokenRejection {
    /// All reasons, in the order of their discriminants.
    pub const ALL: [Self; 10] = [
        Self::Oversize,
        Self::Malformed,
        Self::Algorithm,
        Self::UnknownKey,
        Self::Signature,
        Self::Expired,
        Self::NotYetValid,
        Self::Issuer,
        Self::Audience,
        Self::Throttled,
    ];

    /// The name of the reason in metrics.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Oversize => "oversize",
            Self::Malformed => "malformed",
            Self::Algorithm => "algorithm",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "signature",
            Self::Expired => "expired",
            Self::NotYetValid => "not_yet_valid",
            Self::Issuer => "issuer",
            Self::Audience => "audience",
            Self::Throttled => "throttled",
        }
    }
}

/// Counts what became of tokens. It survives reloads.
#[derive(Debug, Default)]
pub struct TokenCounters {
    verified: AtomicU64,
    cached: AtomicU64,
    signature_checks: AtomicU64,
    rejections: [AtomicU64; TokenRejection::ALL.len()],
}

impl TokenCounters {
    pub(super) fn count_verified(&self) {
        self.verified.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_cached(&self) {
        self.cached.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_signature_check(&self) {
        self.signature_checks.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_rejection(&self, reason: TokenRejection) {
        if let Some(counter) = self.rejections.get(reason as usize) {
            counter.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// The tokens that were verified by their signature.
    #[must_use]
    pub fn verified(&self) -> u64 {
        self.verified.load(Ordering::Relaxed)
    }

    /// The tokens that had been verified before.
    #[must_use]
    pub fn cached(&self) -> u64 {
        self.cached.load(Ordering::Relaxed)
    }

    /// How many signatures were computed, also wrong ones.
    #[must_use]
    pub fn signature_checks(&self) -> u64 {
        self.signature_checks.load(Ordering::Relaxed)
    }

    /// The tokens without claims, for one reason.
    #[must_use]
    pub fn rejections(&self, reason: TokenRejection) -> u64 {
        let counter = self.rejections.get(reason as usize);
        counter.map_or(0, |counter| counter.load(Ordering::Relaxed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_counter() {
        let counters = TokenCounters::default();
        for (index, reason) in TokenRejection::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, index, "{reason:?}");
            counters.count_rejection(reason);
            assert_eq!(counters.rejections(reason), 1);
        }
    }
}
