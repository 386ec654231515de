//! Warns of exemptions that every request meets.
//!
//! Must not know: limits. That an exemption takes all requests of one limit is a mistake, which `check` reports.

use crate::attributes::Attribute;
use crate::model::{Condition, Policy, Test};
use crate::read::DiagnosticSink;

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    for matching in &policy.exempt {
        let Some(first) = matching.conditions.first() else {
            continue;
        };
        if matching
            .conditions
            .iter()
            .all(|condition| is_always_met(&condition.value))
        {
            sink.add(
                first.location,
                "this `exempt` entry exempts every request, so no limit ever applies",
                "narrow it; to switch all limits off write `mode: off`",
            );
        }
    }
}

/// Whether every request meets the condition, or every request of IPv4 or of IPv6.
fn is_always_met(condition: &Condition) -> bool {
    let is_always_there = matches!(
        condition.attribute,
        Attribute::Ip | Attribute::Method | Attribute::Host | Attribute::Path
    );
    match &condition.test {
        Test::Present => is_always_there,
        Test::Within(networks) => networks.iter().any(|network| network.prefix_len() == 0),
        Test::Route(templates) => templates
            .iter()
            .any(|template| template.0.strip_prefix("/{*").is_some()),
        Test::Glob(globs) => {
            let is_all = |glob: &str| matches!(glob, "**" | "/**");
            is_always_there && globs.iter().any(|glob| is_all(&glob.0))
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn an_exemption_of_every_request_is_warned_of() {
        for (exempt, is_warned) in [
            ("ip: 0.0.0.0/0", true),
            ("ip: [10.0.0.0/8, \"::/0\"]", true),
            ("route: \"/{*all}\"", true),
            ("path: { glob: \"/**\" }", true),
            ("method: present", true),
            ("ip: 0.0.0.0/0, method: GET", false),
            ("ip: 10.0.0.0/8", false),
            ("route: \"/health/{*all}\"", false),
            ("path: { glob: \"/a/**\" }", false),
            ("claim.sub: present", false),
        ] {
            let text = format!("exempt: [{{ {exempt} }}]\nlimits: [{{ name: a, rate: 1/s }}]");
            let found = warnings_of("exempts-everything", &text);
            assert_eq!(!found.is_empty(), is_warned, "{exempt}: {found:?}");
        }
    }
}
