//! Policies of ours, explained.
//!
//! Must not know: flags.

use tollgate_policy::explain::{explain as explain_policy, explain_request};
use tollgate_policy::rules::Rules;
use tollgate_policy::source::{Diagnostic, Problems};

use super::{Asked, Said, Unexplained};
use crate::input::Source;

pub(super) fn explain(source: &Source, asked: &Asked) -> Result<Said, Unexplained> {
    let wrong = |problems: Problems| Unexplained::Wrong(vec![problems]);
    let listed = |list: Vec<Diagnostic>| wrong(Problems::new(&source.name, &source.text, list));
    let policy = tollgate_policy::load(&source.text, &source.name, source.format).map_err(wrong)?;
    let Some(request) = asked.request() else {
        return Ok(Said::new(&explain_policy(&policy).map_err(listed)?)?);
    };
    // Digests of hashed keys are shown under this secret, not under that of any fleet.
    let rules = Rules::compile(&policy, [0; 16]).map_err(listed)?;
    Ok(Said::new(&explain_request(&policy, &rules, &request))?)
}
