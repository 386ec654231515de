//! Explains Tollgate policies.
//!
//! Must not know: flags.

use tollgate_policy::explain::{explain as explain_policy, explain_request};
use tollgate_policy::model::{Consistency, OnStoreFailure, Policy};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::{Diagnostic, Diagnostics};

use super::{ExplainError, RenderedExplanation, RequestArguments, to_json};
use crate::input::SourceFile;

pub(super) fn explain(
    source: &SourceFile,
    arguments: &RequestArguments,
    fleet: bool,
) -> Result<RenderedExplanation, ExplainError> {
    let wrong = |problems: Diagnostics| ExplainError::Invalid(vec![problems]);
    let listed = |list: Vec<Diagnostic>| wrong(Diagnostics::new(&source.name, &source.text, list));
    let policy = tollgate_policy::load(&source.text, &source.name, source.format).map_err(wrong)?;
    let Some(request) = arguments.to_request() else {
        let mut explanation = explain_policy(&policy).map_err(listed)?;
        let data = to_json(&explanation)?;
        if !fleet && !mentions_fleet(&policy) {
            explanation = explanation.without_fleet();
        }
        let text = explanation.to_string();
        return Ok(RenderedExplanation { text, data });
    };
    // Digests of hashed keys use this fixed secret, not that of a fleet.
    let rules = Rules::compile(&policy, [0; 16]).map_err(listed)?;
    Ok(RenderedExplanation::new(&explain_request(
        &policy, &rules, &request,
    ))?)
}

/// Whether the policy has a setting that only a fleet uses.
fn mentions_fleet(policy: &Policy) -> bool {
    policy.nodes.is_some()
        || policy.limits.iter().any(|limit| {
            limit.colocate.is_some()
                || limit.consistency.value != Consistency::Exact
                || limit.on_store_failure != OnStoreFailure::Local
        })
}
