//! Compiles a policy for the engine: core quotas, meters with identities, and the selection of quotas.
//!
//! Must not know: files, stores, clocks.

pub(crate) mod attributes_read;
mod bucket;
mod claims;
mod duplicates;
mod limit;
mod preflights;
pub mod quota;
mod quota_errors;
mod shared_states;
pub(crate) mod shares;

#[cfg(test)]
mod tests;

pub(crate) use limit::{full_key, when_full};
pub(crate) use preflights::preflight_limit;

use std::collections::HashMap;

use crate::model::{Match, Policy};
use crate::rules::{RuleError, RuleErrorKind, RuleOrigin, Rules, RulesDraft};
use crate::source::{Diagnostic, SourceLocation};

impl Rules {
    /// Compiles a policy. The secret keys every digest in keys; all nodes of a fleet use the same secret.
    ///
    /// # Errors
    /// Everything in the policy that is not supported, in file order.
    pub fn compile(policy: &Policy, secret: [u8; 16]) -> Result<Self, Vec<Diagnostic>> {
        let compiled = compile_draft(policy, secret).and_then(|draft| {
            Self::new(draft, secret).map_err(|errors| {
                let diagnostics = errors.iter().map(|error| rule_diagnostic(policy, error));
                diagnostics.collect()
            })
        });
        compiled.map_err(|mut diagnostics: Vec<Diagnostic>| {
            diagnostics.sort();
            diagnostics.dedup();
            diagnostics
        })
    }
}

/// Compiles each limit of a policy.
pub(crate) fn compile_draft(
    policy: &Policy,
    secret: [u8; 16],
) -> Result<RulesDraft, Vec<Diagnostic>> {
    let mut diagnostics = bucket::check_buckets(&policy.limits);
    diagnostics.extend(check_identities(policy));
    let mut draft = RulesDraft {
        exempt: policy.exempt.clone(),
        deny: policy.deny.clone(),
        groups: policy.groups.clone(),
        routes: policy.routes.iter().map(|at| at.value.clone()).collect(),
        paths: policy.paths,
        duplicates: duplicates::duplicate_rules(policy),
        claims: claims::claim_names(policy),
        divergence_threshold: policy.divergence_threshold,
        priorities: policy.priorities.clone(),
        overload: policy.overload.weakened(|_| policy.mode),
        retries: policy.retries.clone(),
        ..RulesDraft::default()
    };
    diagnostics.extend(claims::too_many_claims(policy, &draft.claims));
    diagnostics.extend(claims::unread_retry_client(policy));
    let waits = claims::limits_that_wait(policy);
    for (limit, waits) in policy.limits.iter().zip(waits) {
        match limit::compile(policy, limit, secret) {
            Ok(mut compiled) => {
                compiled.rule.waits_for_claims = waits;
                draft.limits.push(compiled);
            }
            Err(diagnostics_of_limit) => diagnostics.extend(diagnostics_of_limit),
        }
    }
    bucket::share_ceilings(&mut draft.limits);
    if let Some(limit) = preflights::preflight_limit(policy) {
        match limit::compile(policy, &limit, secret) {
            Ok(compiled) => draft.preflights = Some(compiled),
            Err(diagnostics_of_limit) => diagnostics.extend(diagnostics_of_limit),
        }
    }
    match diagnostics.is_empty() {
        true => Ok(draft),
        false => Err(diagnostics),
    }
}

/// Limits without a shared bucket must have different identities.
fn check_identities(policy: &Policy) -> Vec<Diagnostic> {
    let mut first = HashMap::new();
    let mut diagnostics = Vec::new();
    for limit in policy.limits.iter().filter(|limit| limit.bucket.is_none()) {
        let owner = *first.entry(limit::identity(limit)).or_insert(limit);
        if std::ptr::eq(owner, limit) {
            continue;
        }
        let (field, location) = match &limit.id {
            Some(id) => ("id", id.location),
            None => ("name", limit.name.location),
        };
        diagnostics.push(Diagnostic::new(
            location,
            format!(
                "`{}` has the same `{field}` as `{}`, so both would share one state",
                limit.name.value, owner.name.value
            ),
            format!(
                "use a different `{field}` for each limit, or the same `bucket` to share the state"
            ),
        ));
    }
    diagnostics
}

/// The diagnostic of a rule that exceeds a matching bound, with its location.
fn rule_diagnostic(policy: &Policy, error: &RuleError) -> Diagnostic {
    let of_match = |matching: &Match| {
        matching
            .conditions
            .first()
            .map_or(SourceLocation::default(), |condition| condition.location)
    };
    let location = match error.origin {
        RuleOrigin::Limit(index) => policy.limits.get(index).map(|limit| limit.name.location),
        RuleOrigin::Deny(index) => policy.deny.get(index).map(|deny| of_match(&deny.matching)),
        RuleOrigin::Exempt(index) => policy.exempt.get(index).map(of_match),
        RuleOrigin::Priority(index) => {
            let class = policy
                .priorities
                .iter()
                .filter(|class| class.matching.is_some());
            class
                .into_iter()
                .nth(index)
                .map(|class| class.name.location)
        }
        RuleOrigin::Route(index) => policy.routes.get(index).map(|route| route.location),
    };
    Diagnostic {
        location: location.unwrap_or_default(),
        message: error.to_string().into(),
        help: matches!(error.kind, RuleErrorKind::TooManyQuotas { .. }).then(|| {
            "let limits exclude each other by `match`, put them in a group with `apply: narrowest`, or leave some out"
                .into()
        }),
    }
}
