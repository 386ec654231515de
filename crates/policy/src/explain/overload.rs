//! Explains overload control: the priority classes, and what each mechanism does.
//!
//! Must not know: how load is measured, operators' switches.

use serde::Serialize;

use super::{limit, matching};
use crate::model::{Mode, Percent, Policy, PriorityClassSpec, ShedMechanism};

/// The explanation of `priorities` and `overload`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct OverloadExplanation {
    /// The classes, the most important first.
    pub classes: Vec<ClassExplanation>,
    /// The mechanisms that are switched on.
    pub mechanisms: Vec<MechanismExplanation>,
}

/// The explanation of a priority class.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ClassExplanation {
    /// The name in the file.
    pub name: String,
    /// Which requests belong to it.
    pub requests: String,
}

/// The explanation of one mechanism.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MechanismExplanation {
    /// The field that switches it.
    pub name: &'static str,
    /// Whether it is enforced.
    pub mode: String,
    /// What it does.
    pub words: String,
}

/// Explains what sheds requests. `None` if nothing does.
pub(super) fn explain(policy: &Policy) -> Option<OverloadExplanation> {
    let spec = policy.overload.weakened(|_| policy.mode);
    let class = |class: &PriorityClassSpec| ClassExplanation {
        name: class.name.value.to_string(),
        requests: match &class.matching {
            Some(matching) => matching::describe_match(matching),
            None => "requests that no other class matches".to_owned(),
        },
    };
    let is_on = |mechanism: &ShedMechanism| spec.mode(*mechanism) != Mode::Off;
    let mechanism = |mechanism: ShedMechanism| {
        MechanismExplanation {
        name: mechanism.name(),
        mode: limit::describe_mode(spec.mode(mechanism), Percent::ALL),
        words: match mechanism {
            ShedMechanism::Concurrency => {
                "requests above a learned concurrency limit wait at most 100 ms, by class, and are then shed".to_owned()
            }
            ShedMechanism::Utilization => {
                "while the process nears saturation, classes are shed from the last one; the first class never".to_owned()
            }
            ShedMechanism::Reserve => format!(
                "{} of the learned concurrency limit is kept for the first class",
                spec.reserved_share
            ),
            ShedMechanism::Retries => format!(
                "retries of authenticated clients ({}) above {} of their first tries are shed",
                policy.retries.client.as_ref().map_or_else(String::new, |client| client.value.to_string()),
                spec.retry_share
            ),
            ShedMechanism::Credits => {
                "responses tell each client address how much of the capacity it may use soon, once the capacity is known".to_owned()
            }
        },
    }
    };
    (!spec.is_off()).then(|| OverloadExplanation {
        classes: policy.priorities.iter().map(class).collect(),
        mechanisms: ShedMechanism::ALL
            .into_iter()
            .filter(is_on)
            .map(mechanism)
            .collect(),
    })
}
