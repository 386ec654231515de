//! A policy back into YAML, in one canonical form: what is a default is left out, and reading it gives the same policy.
//!
//! Must not know: how files are read, how rules are matched.

mod limit;
mod matching;
mod out;
mod quota;
mod words;

use crate::model::{Apply, DenyRule, Group, Mode, Percent, Policy};
use out::{Fields, Out};

/// The status of a `deny` that says none.
const DENY_STATUS: u16 = 403;
/// The `divergence_threshold` of a policy that says none.
const DIVERGENCE_THRESHOLD: Percent = Policy::DIVERGENCE_THRESHOLD;

/// The text of a policy. Loading it gives an equal policy.
///
/// ```
/// use tollgate_policy::model::{Mode, Percent, Policy};
///
/// let policy = Policy {
///     mode: Mode::Shadow,
///     nodes: Some(3),
///     divergence_threshold: Percent::from_hundredths(200),
///     ..Policy::default()
/// };
/// assert_eq!(tollgate_policy::write::yaml(&policy), "mode: shadow\nfleet:\n  nodes: 3\nlimits: []\n");
/// ```
#[must_use]
pub fn yaml(policy: &Policy) -> String {
    let mut fields = Fields::default();
    fields.some("mode", mode(policy.mode));
    if let Some(nodes) = policy.nodes {
        let mut fleet = Fields::default();
        fleet.add("nodes", Out::number(nodes));
        fields.add("fleet", fleet.into());
    }
    if policy.divergence_threshold != DIVERGENCE_THRESHOLD {
        fields.add(
            "divergence_threshold",
            Out::word(policy.divergence_threshold),
        );
    }
    fields.list(
        "routes",
        policy.routes.iter().map(|route| Out::text(&route.value.0)),
    );
    if !policy.groups.is_empty() {
        fields.add("groups", groups(&policy.groups));
    }
    fields.list(
        "exempt",
        policy.exempt.iter().map(|matching| {
            let mut exempt = Fields::default();
            exempt.add("match", matching::conditions(matching));
            exempt.into()
        }),
    );
    fields.list("deny", policy.deny.iter().map(deny));
    // Said even if there are none, because a file that says nothing is refused.
    fields.add(
        "limits",
        Out::List(policy.limits.iter().map(limit::limit).collect()),
    );
    Out::from(fields).to_string()
}

fn groups(groups: &[Group]) -> Out {
    let mut fields = Fields::default();
    for group in groups {
        let mut one = Fields::default();
        let apply = match group.apply {
            Apply::All => "all",
            Apply::Narrowest => "narrowest",
        };
        one.add("apply", Out::word(apply));
        fields.add(&group.name.value, one.into());
    }
    fields.into()
}

fn deny(rule: &DenyRule) -> Out {
    let mut fields = Fields::default();
    fields.add("match", matching::conditions(&rule.matching));
    if rule.status != DENY_STATUS {
        fields.add("status", Out::number(rule.status));
    }
    fields.some("message", rule.message.as_deref().map(Out::text));
    fields.into()
}

/// A mode, unless it is the default.
fn mode(mode: Mode) -> Option<Out> {
    match mode {
        Mode::Enforce => None,
        Mode::Shadow => Some(Out::word("shadow")),
        Mode::Off => Some(Out::word("off")),
    }
}

#[cfg(test)]
mod tests;
