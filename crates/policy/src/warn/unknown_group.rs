//! Warns of limits in a group that is not declared: such a group does nothing.
//!
//! Must not know: misspelt names of declared groups, which are mistakes.

use crate::model::Policy;
use crate::read::DiagnosticSink;

pub(super) fn warn(policy: &Policy, sink: &mut DiagnosticSink) {
    for group in policy
        .limits
        .iter()
        .filter_map(|limit| limit.group.as_ref())
    {
        let is_declared = |name: &str| policy.groups.iter().any(|known| &*known.name.value == name);
        if !is_declared(&group.value) {
            sink.add(
                group.location,
                format!(
                    "group `{}` is not declared, so all of its limits apply",
                    group.value
                ),
                format!(
                    "add `groups: {{ {}: {{ apply: narrowest }} }}`, or leave `group` out",
                    group.value
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::warnings_of;

    #[test]
    fn a_group_that_is_not_declared_is_warned_of() {
        let limits = "limits: [{ name: a, rate: 1/s, group: aws }]";
        assert_eq!(
            warnings_of("unknown-group", limits),
            ["group `aws` is not declared, so all of its limits apply"]
        );
        let declared = format!("groups: {{ aws: {{ apply: narrowest }} }}\n{limits}");
        assert!(warnings_of("unknown-group", &declared).is_empty());
    }
}
