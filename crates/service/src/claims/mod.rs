//! Claims of verified tokens (JWT), for every transport: [`RateLimitService::check`](crate::RateLimitService::check) finds the token in the
//! request and verifies it if a limit needs its claims.
//!
//! A token is verified only after the limits that need no claims have admitted the request, so that a client cannot have signatures
//! computed past the limit of its address. ADR 0054 has the reasons. Must not know: transports, how limits decide.

mod claim_values;
mod claimed_request;
mod compact_token;
mod failure_throttle;
mod fuzz;
mod jwk;
mod key_file;
mod key_file_watcher;
mod key_set;
mod rejection;
mod strict_json;
#[cfg(test)]
mod tests;
mod token_cache;
mod verifier;

#[doc(hidden)]
pub use fuzz::fuzz_token;
pub use key_file_watcher::KeyFileWatcher;
pub use rejection::{TokenCounters, TokenRejection};

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use arc_swap::ArcSwapOption;
use tollgate_core::{Nanos, Timestamp};
use tollgate_engine::Verdict;
use tollgate_policy::attributes::{Attribute, Attributes};
use tollgate_policy::model::Policy;
use tollgate_policy::rules::Rules;
use tollgate_policy::source::Diagnostic;

pub(crate) use claimed_request::ClaimedRequest;
use compact_token::without_scheme;
use verifier::{TokenDigest, TokenVerifier};

use crate::reload::ReloadOutcome;

/// The tokens that the current policy accepts, and what became of tokens so far.
#[derive(Debug, Default)]
pub struct ClaimVerifier {
    /// `None` if the policy has no `jwt`, or reads no claim.
    current: ArcSwapOption<TokenVerifier>,
    /// Whether there is one. Set before it is in force and cleared afterwards, so that most decisions read only this flag.
    is_used: AtomicBool,
    /// Locked while both are replaced, so that they stay the same.
    replacing: Mutex<()>,
    counters: TokenCounters,
}

/// The settings of a policy that is not in force yet.
#[derive(Debug, Default)]
pub struct PreparedClaims(Option<Arc<TokenVerifier>>);

/// The verifier of one decision: a reload meanwhile changes nothing.
pub(crate) struct ClaimLookup<'a> {
    verifier: Arc<TokenVerifier>,
    counters: &'a TokenCounters,
}

/// What is known of a request's claims.
pub(crate) enum KnownClaims<'a> {
    /// The request with its claims, which may be none.
    Known(ClaimedRequest<'a>),
    /// The request without claims. Its token has to be verified if a limit needs them.
    Unverified(ClaimedRequest<'a>, UnverifiedToken<'a>),
}

/// A token that is not in the cache.
pub(crate) struct UnverifiedToken<'a> {
    token: &'a [u8],
    digest: TokenDigest,
}

impl ClaimVerifier {
    /// Prepares the settings of a policy: reads its keys. If they are those in force, their cache stays.
    ///
    /// # Errors
    /// A key of the policy or the file with the keys is invalid.
    pub fn prepare(
        &self,
        policy: &Policy,
        rules: &Rules,
    ) -> Result<PreparedClaims, Vec<Diagnostic>> {
        let names = rules.claims();
        let Some(settings) = &policy.jwt else {
            return Ok(PreparedClaims(None));
        };
        let current = self.current.load_full();
        let same = current.filter(|current| current.is_for(settings, names));
        if let Some(same) = same {
            // Somebody may have asked for this reload because of the keys.
            same.reload_keys(Nanos::ZERO, Timestamp::EPOCH);
            return Ok(PreparedClaims(Some(same)));
        }
        let verifier = TokenVerifier::new(settings, names)?;
        // Keys are checked even if nothing reads a claim yet.
        let is_used = !names.is_empty();
        Ok(PreparedClaims(is_used.then(|| Arc::new(verifier))))
    }

    /// Puts prepared settings in force.
    pub fn replace(&self, prepared: PreparedClaims) {
        let replacing = self.replacing.lock();
        let _one_at_a_time = replacing.unwrap_or_else(PoisonError::into_inner);
        let is_used = prepared.0.is_some();
        self.is_used.fetch_or(is_used, Ordering::Release);
        self.current.store(prepared.0);
        self.is_used.store(is_used, Ordering::Release);
    }

    /// Reads the file with the keys again, if the policy has one. The keys take effect when the file has been the same for the settle
    /// time; `None` if there is no file.
    pub fn reload_keys(&self, settle: Duration, now: Timestamp) -> Option<ReloadOutcome> {
        let verifier = self.current.load_full()?;
        verifier.reload_keys(Nanos::from(settle), now)
    }

    /// The path of the file with the keys, if the policy has one.
    #[must_use]
    pub fn keys_file(&self) -> Option<PathBuf> {
        let verifier = self.current.load_full()?;
        let path = verifier.settings().keys_file.as_ref();
        path.map(|path| PathBuf::from(&*path.value))
    }

    /// What became of tokens so far.
    #[must_use]
    pub const fn counters(&self) -> &TokenCounters {
        &self.counters
    }

    /// The verifier, if the policy reads claims of tokens.
    #[inline]
    pub(crate) fn lookup(&self) -> Option<ClaimLookup<'_>> {
        match self.is_used.load(Ordering::Acquire) {
            true => self.lookup_used(),
            false => None,
        }
    }

    #[inline(never)]
    fn lookup_used(&self) -> Option<ClaimLookup<'_>> {
        self.current.load().as_ref().map(|verifier| ClaimLookup {
            verifier: Arc::clone(verifier),
            counters: &self.counters,
        })
    }
}

impl ClaimLookup<'_> {
    /// What is known of the request's claims without computing a signature.
    pub(crate) fn recall<'a>(
        &'a self,
        request: &'a dyn Attributes,
        now: Timestamp,
    ) -> KnownClaims<'a> {
        let verifier = &*self.verifier;
        let token = request.get(&verifier.settings().from).map(without_scheme);
        let Some(token) = token.filter(|token| !token.is_empty()) else {
            let request = ClaimedRequest::new(request, verifier, None);
            return KnownClaims::Known(request);
        };
        match verifier.recall(token, now, self.counters) {
            Ok(result) => KnownClaims::Known(ClaimedRequest::new(request, verifier, result.ok())),
            Err(digest) => KnownClaims::Unverified(
                ClaimedRequest::new(request, verifier, None),
                UnverifiedToken { token, digest },
            ),
        }
    }

    /// Whether the request's token has been verified before and has this claim. Counts nothing and computes no signature.
    pub(crate) fn has_verified_claim(
        &self,
        request: &dyn Attributes,
        claim: &Attribute,
        now: Timestamp,
    ) -> bool {
        let silent = ClaimLookup {
            verifier: Arc::clone(&self.verifier),
            counters: &TokenCounters::default(),
        };
        match silent.recall(request, now) {
            KnownClaims::Known(claimed) => claimed.get(claim).is_some(),
            KnownClaims::Unverified(..) => false,
        }
    }

    /// The request with the claims of its token, after the limits that need no claims have admitted it. The token is verified only
    /// if a limit or a list asks for a claim.
    pub(crate) fn verify<'a>(
        &'a self,
        (request, without_claims): (&'a dyn Attributes, &ClaimedRequest<'_>),
        token: &UnverifiedToken<'_>,
        admitted: &Verdict,
        now: Timestamp,
    ) -> ClaimedRequest<'a> {
        let verifier = &*self.verifier;
        let is_needed = without_claims.is_asked() || admitted.waits_for_claims();
        let claims = is_needed.then(|| {
            let UnverifiedToken { token, digest } = *token;
            verifier.verify(token, digest, request.ip(), now, self.counters)
        });
        let claims = claims.and_then(Result::ok);
        ClaimedRequest::new(request, verifier, claims)
    }
}
