//! Warnings about a valid policy: what loads and works, but probably not as its author thinks.
//!
//! Each file finds one kind. A warning never makes a policy invalid. Must not know: how files are written or read.

mod client_chosen;
mod exempts_everything;
mod gateways;
mod jwt;
mod tier_burst;
mod twice_the_rate;
mod unknown_group;
mod zero_rate;

use crate::model::Policy;
use crate::read::DiagnosticSink;
use crate::source::Diagnostic;

/// Finds one kind of warning.
type Finder = fn(&Policy, &mut DiagnosticSink);

/// The kinds. Each warning ends with the name of its kind in brackets.
const KINDS: [(&str, Finder); 10] = [
    ("claim-behind-gateway", gateways::warn_of_claims),
    ("claim-exemption", jwt::warn_of_exemption),
    ("client-chosen", client_chosen::warn),
    ("concurrency-behind-gateway", gateways::warn_of_concurrency),
    ("exempts-everything", exempts_everything::warn),
    ("jwt-any-audience", jwt::warn_of_audience),
    ("tier-burst", tier_burst::warn),
    ("twice-the-rate", twice_the_rate::warn),
    ("unknown-group", unknown_group::warn),
    ("zero-rate", zero_rate::warn),
];

/// The names of all kinds of warnings.
pub fn warning_kinds() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(kind, _)| *kind)
}

/// The warnings about a policy without mistakes.
pub(crate) fn find_warnings(policy: &Policy) -> Vec<Diagnostic> {
    let mut all = Vec::new();
    for (kind, find) in KINDS {
        let mut sink = DiagnosticSink::default();
        find(policy, &mut sink);
        all.extend(sink.finish().into_iter().map(|warning| Diagnostic {
            message: format!("{} [{kind}]", warning.message).into(),
            ..warning
        }));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load_with_warnings;
    use crate::source::SourceFormat;

    /// The warnings of one kind, without its name.
    pub(super) fn warnings_of(kind: &str, text: &str) -> Vec<String> {
        let (_, warnings) = load_with_warnings(text, "p.yaml", SourceFormat::Yaml)
            .unwrap_or_else(|problems| panic!("{problems}"));
        let kind = format!(" [{kind}]");
        let messages = warnings.list().iter().map(|warning| &warning.message);
        let of_kind = messages.filter_map(|message| message.strip_suffix(&kind));
        of_kind.map(str::to_owned).collect()
    }

    #[test]
    fn an_explicit_policy_has_no_warnings_and_the_kinds_are_sorted() {
        let text = "limits: [{ name: a, key: ip, rate: 100/min, burst: 20 }]";
        let (_, warnings) = load_with_warnings(text, "p.yaml", SourceFormat::Yaml).unwrap();
        assert_eq!(warnings.list(), []);
        assert!(warning_kinds().is_sorted());
    }

    #[test]
    fn a_kind_can_be_left_out() {
        let text = "limits: [{ name: a, key: claim.sub, rate: 100/min }]";
        let (_, warnings) = load_with_warnings(text, "p.yaml", SourceFormat::Yaml).unwrap();
        assert_eq!(warnings.list().len(), 2);
        let left = warnings.without_kinds(&["twice-the-rate"]);
        assert_eq!(left.list().len(), 1);
        assert!(left.list()[0].message.ends_with(" [claim-behind-gateway]"));
    }
}
