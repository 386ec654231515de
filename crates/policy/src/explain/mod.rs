//! Explains a policy for people, exact about the quotas in force; and explains its effect on one request.
//!
//! ```
//! use tollgate_policy::explain::explain;
//! use tollgate_policy::model::Policy;
//!
//! assert_eq!(explain(&Policy::default()).unwrap().to_string(), "no limits: every request is admitted\n");
//! ```
//!
//! Must not know: files, terminals, colours.

mod cost;
mod display;
mod fleet;
mod limit;
mod matching;
mod overload;
mod request;
mod shares;
mod window;

#[cfg(test)]
mod tests;

pub use fleet::{OverAdmission, SlotExplanation};
pub use limit::{LimitExplanation, QuotaExplanation};
pub use overload::{ClassExplanation, MechanismExplanation, OverloadExplanation};
pub use request::{
    ConditionEvaluation, KeyPartEvaluation, LimitEvaluation, RequestExplanation, explain_request,
};
pub use window::WindowExplanation;

use serde::Serialize;

use crate::compile::preflight_limit;
use crate::model::{Mode, Policy};
use crate::rules::Rules;
use crate::source::Diagnostic;

/// The explanation of a policy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The mode of the whole policy, unless it is `enforce`.
    pub mode: Option<String>,
    /// Requests that a `deny` rule refuses.
    pub deny: Vec<String>,
    /// Requests that no limit applies to.
    pub exempt: Vec<String>,
    /// What sheds requests, if anything does.
    pub overload: Option<OverloadExplanation>,
    /// The limits, in file order.
    pub limits: Vec<LimitExplanation>,
    /// The built-in limit of CORS preflights, unless they are ordinary requests.
    pub preflights: Option<LimitExplanation>,
    /// The cluster slots of a request that all limits apply to. Each slot is one round trip.
    pub slots: Vec<SlotExplanation>,
}

impl Explanation {
    /// The same for a single process: without slots, round trips and the size of keys in Redis.
    #[must_use]
    pub fn without_fleet(mut self) -> Self {
        self.slots.clear();
        let limits = self.limits.iter_mut().chain(&mut self.preflights);
        limits.for_each(|limit| limit.fleet.clear());
        self
    }
}

/// Explains a policy.
///
/// # Errors
/// The diagnostics of a policy that does not compile.
pub fn explain(policy: &Policy) -> Result<Explanation, Vec<Diagnostic>> {
    // A policy that does not compile has no effect to explain.
    Rules::compile(policy, [0; 16])?;
    let mut limits = Vec::with_capacity(policy.limits.len());
    for rule in &policy.limits {
        limits.push(limit::explain(policy, rule)?);
    }
    let preflights = preflight_limit(policy).map(|rule| limit::explain(policy, &rule));
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
            Mode::Off => Some("everything is off: no limit applies".to_owned()),
        },
        deny: deny.collect(),
        exempt: policy.exempt.iter().map(matching::describe_match).collect(),
        overload: overload::explain(policy),
        limits,
        preflights: preflights.transpose()?,
        slots: fleet::explain_slots(policy),
    })
}
