//! What a policy does, in plain words that are exact about the quotas in force; and what it does with one request.
//!
//! ```
//! use tollgate_policy::explain::explain;
//! use tollgate_policy::model::Policy;
//!
//! assert_eq!(explain(&Policy::default()).unwrap().to_string(), "no limits: every request is admitted\n");
//! ```
//!
//! Must not know: files, terminals, colours.

mod display;
mod fleet;
mod limit;
mod matching;
mod request;
mod window;

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;

pub use fleet::{OverAdmission, SlotExplanation};
pub use limit::{LimitExplanation, QuotaExplanation};
pub use request::{
    ConditionEvaluation, KeyPartEvaluation, LimitEvaluation, RequestExplanation, explain_request,
};
pub use window::WindowExplanation;

use serde::Serialize;

use crate::model::{Mode, Policy};
use crate::rules::Rules;
use crate::source::Diagnostic;

/// A whole policy in words.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// What holds for everything at once, where it is not plain enforcement.
    pub mode: Option<String>,
    /// Requests that are refused whatever the limits say.
    pub deny: Vec<String>,
    /// Requests that no limit applies to.
    pub exempt: Vec<String>,
    /// The limits, in the order of the file.
    pub limits: Vec<LimitExplanation>,
    /// The slots of a cluster that a request needs under all limits that ask a store: as many round trips.
    pub slots: Vec<SlotExplanation>,
}

/// Explains a policy.
///
/// # Errors
/// Everything for which the policy would not compile.
pub fn explain(policy: &Policy) -> Result<Explanation, Vec<Diagnostic>> {
    // Whatever does not compile has no effect that could be explained.
    Rules::compile(policy, [0; 16])?;
    let mut limits = Vec::with_capacity(policy.limits.len());
    for rule in &policy.limits {
        limits.push(limit::explain(policy, rule)?);
    }
    let deny = policy.deny.iter().map(|deny| {
        let message = deny
            .message
            .as_ref()
            .map_or(String::new(), |text| format!(" and {text:?}"));
        format!(
            "{} with {}{message}",
            matching::describe_match(&deny.matching),
            deny.status
        )
    });
    Ok(Explanation {
        mode: match policy.mode {
            Mode::Enforce => None,
            Mode::Shadow => Some("everything is in shadow: counted, never enforced".to_owned()),
            Mode::Off => Some("everything is off: no limit is asked".to_owned()),
        },
        deny: deny.collect(),
        exempt: policy.exempt.iter().map(matching::describe_match).collect(),
        limits,
        slots: fleet::explain_slots(policy),
    })
}
