//! Verifies tokens by one policy's settings: keys, issuers, audiences, time.
//!
//! Checks that cost little come first and the signature last. Nothing of a token counts before its signature is right. Must not
//! know: where requests come from, limits.

use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use siphasher::sip128::SipHasher24;
use tollgate_core::{Nanos, Timestamp};
use tollgate_policy::model::JwtSettings;
use tollgate_policy::source::Diagnostic;

use super::claim_values::ClaimValues;
use super::compact_token::CompactToken;
use super::failure_throttle::FailureThrottle;
use super::key_file::KeyFile;
use super::key_set::KeySet;
use super::rejection::{TokenCounters, TokenRejection};
use super::strict_json::{JsonMap, StrictJson};
use super::token_cache::TokenCache;
use crate::reload::ReloadOutcome;
use crate::secret::Secret;

/// The verified tokens that are remembered.
const VERIFIED_TOKENS: usize = 10_000;
/// The rejected tokens that are remembered. They have a table of their own: anybody can make up tokens, and must not displace
/// verified ones by them.
const REJECTED_TOKENS: usize = 4_000;
/// How long a rejection is remembered, in seconds.
const REJECTION_SECONDS: u64 = 60;

/// What is known of a token: its claims, or why they are absent.
pub(super) type TokenResult = Result<Arc<ClaimValues>, TokenRejection>;

/// The tokens that one policy accepts.
#[derive(Debug)]
pub(super) struct TokenVerifier {
    settings: JwtSettings,
    /// The claims that the policy reads, sorted.
    names: Box<[Box<str>]>,
    /// The keys of the policy itself.
    inline: KeySet,
    /// All keys in force.
    keys: ArcSwap<VersionedKeys>,
    versions: AtomicU64,
    file: Option<KeyFile>,
    digest_key: [u8; 16],
    verified: TokenCache<Arc<ClaimValues>>,
    rejected: TokenCache<TokenRejection>,
    failures: FailureThrottle,
}

/// Keys, and a number that changes with them.
#[derive(Debug)]
struct VersionedKeys {
    version: u64,
    keys: KeySet,
}

/// A token that is not in the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenDigest(u128);

impl TokenVerifier {
    /// A verifier for a policy that reads these claims.
    ///
    /// # Errors
    /// A key of the policy or the file with the keys is invalid.
    pub(super) fn new(settings: &JwtSettings, names: &[Box<str>]) -> Result<Self, Vec<Diagnostic>> {
        let (inline, mut problems) = inline_keys(settings);
        let opened = settings.keys_file.as_ref().map(|path| {
            let opened = KeyFile::open(Path::new(&*path.value));
            opened.map_err(|why| {
                let message = format!("`keys_file` {} cannot be used: {why}", path.value);
                let help = "it must be a regular file with a JWK Set: {\"keys\": […]}";
                Diagnostic::new(path.location, message, help)
            })
        });
        let (file, from_file) = match opened {
            Some(Ok((file, keys))) => (Some(file), keys),
            Some(Err(problem)) => {
                problems.push(problem);
                return Err(problems);
            }
            None => (None, KeySet::default()),
        };
        if !problems.is_empty() {
            return Err(problems);
        }
        let digest_key = Secret::random().bytes();
        Ok(Self {
            settings: settings.clone(),
            names: names.into(),
            keys: ArcSwap::from_pointee(VersionedKeys {
                version: 1,
                keys: inline.clone().with(from_file),
            }),
            inline,
            versions: AtomicU64::new(1),
            file,
            failures: FailureThrottle::new(&digest_key),
            digest_key,
            verified: TokenCache::new(VERIFIED_TOKENS),
            rejected: TokenCache::new(REJECTED_TOKENS),
        })
    }

    /// Whether it verifies by the same settings, for the same claims.
    pub(super) fn is_for(&self, settings: &JwtSettings, names: &[Box<str>]) -> bool {
        self.settings == *settings && *self.names == *names
    }

    pub(super) const fn settings(&self) -> &JwtSettings {
        &self.settings
    }

    /// The position of a claim among the values of a token.
    pub(super) fn index_of(&self, name: &str) -> Option<usize> {
        let found = self.names.binary_search_by(|known| (**known).cmp(name));
        found.ok()
    }

    /// What is known of a token without computing a signature.
    ///
    /// # Errors
    /// Nothing: it has to be verified.
    pub(super) fn recall(
        &self,
        token: &[u8],
        now: Timestamp,
        counters: &TokenCounters,
    ) -> Result<TokenResult, TokenDigest> {
        if token.len() > usize::try_from(self.settings.max_bytes).unwrap_or(usize::MAX) {
            counters.count_rejection(TokenRejection::Oversize);
            return Ok(Err(TokenRejection::Oversize));
        }
        let digest = SipHasher24::new_with_key(&self.digest_key).hash(token);
        let digest = u128::from(digest.h1) << 64 | u128::from(digest.h2);
        let (version, now) = (self.keys.load().version, seconds(now));
        if let Some(claims) = self.verified.get(digest, version, now) {
            counters.count_cached();
            return Ok(Ok(claims));
        }
        match self.rejected.get(digest, version, now) {
            Some(reason) => {
                counters.count_rejection(reason);
                Ok(Err(reason))
            }
            None => Err(TokenDigest(digest)),
        }
    }

    /// Verifies a token and remembers the result.
    pub(super) fn verify(
        &self,
        token: &[u8],
        TokenDigest(digest): TokenDigest,
        address: Option<IpAddr>,
        now: Timestamp,
        counters: &TokenCounters,
    ) -> TokenResult {
        let keys = self.keys.load();
        let has_failed = |address: &IpAddr| self.failures.is_full(*address, now);
        if address.as_ref().is_some_and(has_failed) {
            counters.count_rejection(TokenRejection::Throttled);
            return Err(TokenRejection::Throttled);
        }
        match self.verify_with(&keys, token, seconds(now), counters) {
            Ok((claims, until)) => {
                let claims = Arc::new(ClaimValues::new(&self.names, &claims));
                let kept = Arc::clone(&claims);
                self.verified.insert(digest, keys.version, until, kept);
                counters.count_verified();
                Ok(claims)
            }
            Err((reason, until)) => {
                if let (TokenRejection::Signature, Some(address)) = (reason, address) {
                    self.failures.record(address, now);
                }
                self.rejected.insert(digest, keys.version, until, reason);
                counters.count_rejection(reason);
                Err(reason)
            }
        }
    }

    /// The claims and the last second that they are good for; or the reason, and the last second that it is true for.
    fn verify_with(
        &self,
        keys: &VersionedKeys,
        token: &[u8],
        now: u64,
        counters: &TokenCounters,
    ) -> Result<(JsonMap, u64), (TokenRejection, u64)> {
        let remembered = now.saturating_add(REJECTION_SECONDS);
        let for_a_while = |reason| (reason, remembered);
        let token = CompactToken::parse(token).map_err(for_a_while)?;
        let (alg, kid) = token.algorithm().map_err(for_a_while)?;
        let mut candidates = keys.keys.candidates(alg, kid).map_err(for_a_while)?;
        let until = self
            .check_claims(&token.claims, now)
            .map_err(|(reason, true_until)| {
                (reason, true_until.unwrap_or(remembered).min(remembered))
            })?;
        let is_verified = candidates.any(|key| {
            counters.count_signature_check();
            key.verifies(token.message, &token.signature)
        });
        drop(candidates);
        match is_verified {
            true => Ok((token.claims, until)),
            false => Err(for_a_while(TokenRejection::Signature)),
        }
    }

    /// The last second that a token with these claims is good for.
    fn check_claims(
        &self,
        claims: &JsonMap,
        now: u64,
    ) -> Result<u64, (TokenRejection, Option<u64>)> {
        let leeway = self.settings.leeway.as_nanos() / Nanos::SECOND.as_nanos();
        let malformed = (TokenRejection::Malformed, None);
        let date = |name: &str| match claims.get(name) {
            None => Ok(None),
            Some(value) => numeric_date(value).map(Some).ok_or(malformed),
        };
        let expired = (TokenRejection::Expired, None);
        // RFC 7519: on or after this time it is not accepted.
        let expires = date("exp")?.ok_or(expired)?;
        let until = expires.saturating_add(leeway).checked_sub(1);
        let until = until.filter(|until| now <= *until).ok_or(expired)?;
        if let Some(from) = date("nbf")?.map(|from| from.saturating_sub(leeway))
            && now < from
        {
            return Err((TokenRejection::NotYetValid, from.checked_sub(1)));
        }
        let issuers = &self.settings.issuers;
        let issuer = claims.get("iss").and_then(StrictJson::as_text);
        if !issuers.is_empty() && !issuer.is_some_and(|one| contains(issuers, one)) {
            return Err((TokenRejection::Issuer, None));
        }
        let audiences = &self.settings.audiences;
        let is_accepted =
            |one: &StrictJson| one.as_text().is_some_and(|one| contains(audiences, one));
        let is_meant = match claims.get("aud") {
            Some(StrictJson::List(list)) => list.iter().any(is_accepted),
            Some(one) => is_accepted(one),
            None => false,
        };
        match audiences.is_empty() || is_meant {
            true => Ok(until),
            false => Err((TokenRejection::Audience, None)),
        }
    }

    /// Reads the file with the keys again, if there is one and it has changed.
    pub(super) fn reload_keys(&self, settle: Nanos, now: Timestamp) -> Option<ReloadOutcome> {
        let file = self.file.as_ref()?;
        let swap = |from_file: KeySet| {
            let version = self.versions.fetch_add(1, Ordering::Relaxed) + 1;
            let keys = self.inline.clone().with(from_file);
            self.keys.store(Arc::new(VersionedKeys { version, keys }));
            version
        };
        Some(file.reload(settle, now, swap))
    }

    #[cfg(test)]
    pub(super) fn cached_tokens(&self) -> (usize, usize) {
        (self.verified.len(), self.rejected.len())
    }
}

/// The keys of the policy, and what is wrong with the others.
fn inline_keys(settings: &JwtSettings) -> (KeySet, Vec<Diagnostic>) {
    let mut keys = KeySet::default();
    let mut problems = Vec::new();
    for key in &settings.keys {
        if let Err(why) = keys.add_members(&key.value) {
            let help = "copy the key from the JWK Set of the issuer";
            problems.push(Diagnostic::new(key.location, why, help));
        }
    }
    (keys, problems)
}

fn contains(list: &[Box<str>], one: &str) -> bool {
    list.iter().any(|known| **known == *one)
}

/// Whole seconds since 1970. Times before 1970 count as 1970.
fn numeric_date(value: &StrictJson) -> Option<u64> {
    let StrictJson::Number(number) = value else {
        return None;
    };
    if let Some(whole) = number.as_u64() {
        return Some(whole);
    }
    let seconds = number.as_f64()?.max(0.0);
    // Without an exponent, which large numbers are printed with otherwise.
    format!("{:.0}", seconds.trunc()).parse().ok()
}

const fn seconds(now: Timestamp) -> u64 {
    now.as_nanos() / Nanos::SECOND.as_nanos()
}

#[cfg(test)]
mod tests {
    use super::super::strict_json::parse_object;
    use super::*;

    /// `1.5e16` was read as 1: a token that begins in that year was good at once, and one that ends then had expired.
    #[test]
    fn dates_are_whole_seconds_however_they_are_written() {
        for (text, expected) in [
            ("0", Some(0)),
            ("1700000000", Some(1_700_000_000)),
            ("1700000000.9", Some(1_700_000_000)),
            ("1.7e9", Some(1_700_000_000)),
            ("1.5e16", Some(15_000_000_000_000_000)),
            ("1e17", Some(100_000_000_000_000_000)),
            ("18446744073709551615", Some(u64::MAX)),
            ("1e300", None),
            ("-1", Some(0)),
            ("-0.5", Some(0)),
            ("-1e300", Some(0)),
            ("\"1700000000\"", None),
        ] {
            let claims = parse_object(format!("{{\"exp\":{text}}}").as_bytes()).unwrap();
            assert_eq!(numeric_date(&claims["exp"]), expected, "{text}");
        }
    }
}
