//! What a policy says becomes what the engine asks: quotas in core's terms, meters with their identities, and who
//! gets which.
//!
//! Must not know: files, stores, clocks.

mod bucket;
mod limit;
mod problem;
pub mod quota;
mod quota_errors;
mod shared_states;

#[cfg(test)]
mod tests;

pub(crate) use limit::{full_key, when_full};

use std::collections::HashMap;

use crate::model::{Match, Policy};
use crate::rules::{RuleError, RuleOrigin, Rules, RulesDraft};
use crate::source::{Diagnostic, SourceLocation};
use problem::problem;

impl Rules {
    /// The rules of a policy. The secret keys every digest that keys are made of; a fleet shares one.
    ///
    /// # Errors
    /// Everything that cannot be honoured, in the order of the file.
    pub fn compile(policy: &Policy, secret: [u8; 16]) -> Result<Self, Vec<Diagnostic>> {
        let mut problems = bucket::check_buckets(&policy.limits);
        problems.extend(check_identities(policy));
        let mut draft = RulesDraft {
            exempt: policy.exempt.clone(),
            deny: policy.deny.clone(),
            groups: policy.groups.clone(),
            routes: policy.routes.iter().map(|at| at.value.clone()).collect(),
            divergence_threshold: policy.divergence_threshold,
            ..RulesDraft::default()
        };
        for limit in &policy.limits {
            match limit::compile(policy, limit, secret) {
                Ok(compiled) => draft.limits.push(compiled),
                Err(found) => problems.extend(found),
            }
        }
        if problems.is_empty() {
            match Self::new(draft, secret) {
                Ok(rules) => return Ok(rules),
                Err(unfit) => {
                    problems.extend(unfit.iter().map(|unfit| rule_diagnostic(policy, unfit)))
                }
            }
        }
        problems.sort();
        problems.dedup();
        Err(problems)
    }
}

/// Two limits that do not share a bucket must not share a state.
fn check_identities(policy: &Policy) -> Vec<Diagnostic> {
    let mut first = HashMap::new();
    let mut problems = Vec::new();
    for limit in policy.limits.iter().filter(|limit| limit.bucket.is_none()) {
        let owner = *first.entry(limit::identity(limit)).or_insert(limit);
        if std::ptr::eq(owner, limit) {
            continue;
        }
        let (field, place) = match &limit.id {
            Some(id) => ("id", id.location),
            None => ("name", limit.name.location),
        };
        problems.push(problem(
            place,
            &format!(
                "`{}` has the same `{field}` as `{}`, so both would count in one place",
                limit.name.value, owner.name.value
            ),
            &format!("give each limit another `{field}`, or the same `bucket` if that is meant"),
        ));
    }
    problems
}

/// What is too large to be matched, where it stands.
fn rule_diagnostic(policy: &Policy, unfit: &RuleError) -> Diagnostic {
    let of_match = |matching: &Match| {
        matching
            .conditions
            .first()
            .map_or(SourceLocation::default(), |condition| condition.location)
    };
    let place = match unfit.origin {
        RuleOrigin::Limit(index) => policy.limits.get(index).map(|limit| limit.name.location),
        RuleOrigin::Deny(index) => policy.deny.get(index).map(|deny| of_match(&deny.matching)),
        RuleOrigin::Exempt(index) => policy.exempt.get(index).map(of_match),
        RuleOrigin::Route(index) => policy.routes.get(index).map(|route| route.location),
    };
    Diagnostic {
        location: place.unwrap_or_default(),
        message: unfit.to_string().into(),
        help: None,
    }
}
