//! CORS preflights: which requests they are, and which limits they are charged to.
//!
//! A browser sends a preflight before a request that a page of another origin makes. It has no credentials, so limits of users
//! cannot recognise it. Must not know: how limits are matched.

use super::MatchedRules;
use crate::attributes::{Attribute, Attributes};

/// The built-in limit of preflights.
#[derive(Debug)]
pub(super) struct PreflightRule {
    /// Its index, behind all limits of the policy.
    pub(super) index: usize,
    /// What a preflight has: `Origin` and `Access-Control-Request-Method`.
    required: [Attribute; 2],
    /// What browsers never send with a preflight. Such a request may be more than a preflight to the server behind.
    excluded: [Attribute; 3],
}

impl PreflightRule {
    pub(super) fn new(index: usize) -> Self {
        let header = |name: &str| Attribute::Header(name.into());
        Self {
            index,
            required: [header("origin"), header("access-control-request-method")],
            excluded: [
                header("authorization"),
                header("cookie"),
                header("x-http-method-override"),
            ],
        }
    }

    /// Replaces the limits of a preflight by the built-in limit and those that name `OPTIONS`. Lists have decided before.
    #[inline]
    pub(super) fn select(
        &self,
        request: &dyn Attributes,
        applies: impl Fn(usize) -> bool,
        matched: &mut MatchedRules,
    ) {
        if has_method(request) && self.is_preflight(request) {
            matched.rules.retain(|index| applies(*index));
            matched.rules.push(self.index);
        }
    }

    #[cold]
    fn is_preflight(&self, request: &dyn Attributes) -> bool {
        let has = |attribute: &Attribute| request.get(attribute).is_some();
        // Without an address there is no quota of an address.
        request.ip().is_some() && self.required.iter().all(has) && !self.excluded.iter().any(has)
    }
}

/// Whether a request has the method of preflights.
#[inline]
pub(super) fn has_method(request: &dyn Attributes) -> bool {
    request.get(&Attribute::Method) == Some(b"OPTIONS")
}
