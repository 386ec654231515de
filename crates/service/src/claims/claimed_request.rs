//! A request with the claims of its token.
//!
//! Must not know: how tokens are verified.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tollgate_policy::attributes::{Attribute, AttributeFamily, Attributes, Unreadable};

use super::claim_values::ClaimValues;
use super::verifier::TokenVerifier;

/// A request whose claims come from its token alone: those that the transport has are not read.
pub(crate) struct ClaimedRequest<'a> {
    request: &'a dyn Attributes,
    verifier: &'a TokenVerifier,
    claims: Option<Arc<ClaimValues>>,
    /// Whether a rule has asked for a claim.
    is_asked: AtomicBool,
}

impl<'a> ClaimedRequest<'a> {
    pub(super) const fn new(
        request: &'a dyn Attributes,
        verifier: &'a TokenVerifier,
        claims: Option<Arc<ClaimValues>>,
    ) -> Self {
        Self {
            request,
            verifier,
            claims,
            is_asked: AtomicBool::new(false),
        }
    }

    pub(super) fn is_asked(&self) -> bool {
        self.is_asked.load(Ordering::Relaxed)
    }
}

impl Attributes for ClaimedRequest<'_> {
    fn ip(&self) -> Option<IpAddr> {
        self.request.ip()
    }

    fn get(&self, attribute: &Attribute) -> Option<&[u8]> {
        let Attribute::Claim(name) = attribute else {
            return self.request.get(attribute);
        };
        self.is_asked.store(true, Ordering::Relaxed);
        self.claims.as_ref()?.get(self.verifier.index_of(name)?)
    }

    fn visit_names(&self, family: AttributeFamily, visit: &mut dyn FnMut(&str)) -> bool {
        // No rule is found by its claims, so nothing is lost by not listing them.
        family != AttributeFamily::Claim && self.request.visit_names(family, visit)
    }

    fn unreadable(&self) -> Option<Unreadable> {
        self.request.unreadable()
    }
}

impl fmt::Debug for ClaimedRequest<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ClaimedRequest").finish_non_exhaustive()
    }
}
