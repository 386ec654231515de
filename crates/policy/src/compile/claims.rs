//! Which claims a policy reads, and which limits can be decided before a token is verified.
//!
//! Must not know: how tokens are verified.

use super::attributes_read::{limit_attributes, match_attributes, policy_attributes};
use crate::attributes::Attribute;
use crate::model::{GroupSelection, JwtSettings, LimitRule, Policy};
use crate::source::Diagnostic;

/// The names of all claims that the policy reads, sorted.
pub(super) fn claim_names(policy: &Policy) -> Vec<Box<str>> {
    let attributes = policy_attributes(policy).into_iter();
    let names = attributes.filter_map(|attribute| match attribute {
        Attribute::Claim(name) => Some(name.clone()),
        _ => None,
    });
    names.collect()
}

/// Reports more claims than are kept for each verified token.
pub(super) fn too_many_claims(policy: &Policy, claims: &[Box<str>]) -> Option<Diagnostic> {
    const MOST: usize = JwtSettings::MAX_CLAIMS;
    let location = policy.limits.first()?.name.location;
    (policy.jwt.is_some() && claims.len() > MOST).then(|| {
        Diagnostic::new(
            location,
            format!("the policy reads {} different claims", claims.len()),
            format!("read at most {MOST}: each is kept for every verified token"),
        )
    })
}

/// Reports a claim of retrying clients that no limit reads: a token is verified only for limits, so no client would count as
/// authenticated.
pub(super) fn unread_retry_client(policy: &Policy) -> Option<Diagnostic> {
    let client = policy.retries.client.as_ref()?;
    let is_read = |limit: &LimitRule| limit_attributes(limit).contains(&client.value);
    let is_unread =
        matches!(client.value, Attribute::Claim(_)) && !policy.limits.iter().any(is_read);
    is_unread.then(|| {
        Diagnostic::new(
            client.location,
            format!(
                "`retry_client`: no limit reads `{}`, so no token would be verified",
                client.value
            ),
            "add a limit with this claim as its `key`",
        )
    })
}

/// Whether each limit, in file order, has to wait for claims. That is a limit that reads a claim, and a limit that a claim can
/// replace (in a group of which the narrowest applies) or switch off (by an exemption).
pub(super) fn limits_that_wait(policy: &Policy) -> Vec<bool> {
    let is_claim = |attribute: &Attribute| matches!(attribute, Attribute::Claim(_));
    let reads = |limit: &LimitRule| limit_attributes(limit).into_iter().any(is_claim);
    let is_exemption = policy
        .exempt
        .iter()
        .any(|exempt| match_attributes(exempt).any(is_claim));
    let groups: Vec<&str> = policy
        .groups
        .iter()
        .filter(|group| group.apply == GroupSelection::Narrowest)
        .map(|group| &*group.name.value)
        .filter(|name| {
            let mut limits = policy.limits.iter().filter(|limit| is_in(limit, name));
            limits.any(reads)
        })
        .collect();
    let waits = |limit: &LimitRule| {
        is_exemption || reads(limit) || groups.iter().any(|group| is_in(limit, group))
    };
    policy.limits.iter().map(waits).collect()
}

fn is_in(limit: &LimitRule, group: &str) -> bool {
    let own = limit.group.as_ref();
    own.is_some_and(|own| &*own.value == group)
}
