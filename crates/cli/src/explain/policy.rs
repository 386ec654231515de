//! Explains Tollgate policies.
//!
//! Must not know: flags.

use tollgate_policy::explain::{explain as explain_policy, explain_request};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::{Diagnostic, Diagnostics};

use super::{ExplainError, RenderedExplanation, RequestArguments};
use crate::input::SourceFile;

pub(super) fn explain(
    source: &SourceFile,
    arguments: &RequestArguments,
) -> Result<RenderedExplanation, ExplainError> {
    let wrong = |problems: Diagnostics| ExplainError::Invalid(vec![problems]);
    let listed = |list: Vec<Diagnostic>| wrong(Diagnostics::new(&source.name, &source.text, list));
    let policy = tollgate_policy::load(&source.text, &source.name, source.format).map_err(wrong)?;
    let Some(request) = arguments.to_request() else {
        return Ok(RenderedExplanation::new(
            &explain_policy(&policy).map_err(listed)?,
        )?);
    };
    // Digests of hashed keys use this fixed secret, not that of a fleet.
    let rules = Rules::compile(&policy, [0; 16]).map_err(listed)?;
    Ok(RenderedExplanation::new(&explain_request(
        &policy, &rules, &request,
    ))?)
}
