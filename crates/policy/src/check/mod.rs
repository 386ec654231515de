//! Semantic checks of a policy: duplicate names, unreachable limits, quotas that admit nothing, unsupported
//! consistency.
//!
//! Each file checks one kind of mistake and reports all of them. Must not know: how files are written or read.

mod consistency;
mod counting;
mod coverage;
mod gateway;
mod hierarchy;
mod matching;
mod names;
mod quota;
mod reachability;
mod rollout;
mod shared_buckets;
mod shares;
mod spillover;
mod tiers;

use crate::model::{LimitRule, Policy};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

/// Reports the mistakes of a policy. The policy lacks the limits that could not be read.
pub(crate) fn check_policy(policy: &Policy, locations: &FieldLocations, sink: &mut DiagnosticSink) {
    let is_complete = sink.len() == 0;
    names::check(policy, locations, sink);
    shared_buckets::check(policy, sink);
    gateway::check(policy, sink);
    matching::check_lists(policy, sink);
    for (index, rule) in policy.limits.iter().enumerate() {
        let limit = LimitContext {
            index,
            rule,
            locations,
        };
        matching::check(&limit, sink);
        quota::check(&limit, sink);
        tiers::check(&limit, sink);
        hierarchy::check(&limit, sink);
        counting::check(&limit, sink);
        rollout::check(&limit, sink);
        consistency::check(&limit, sink);
        spillover::check(&limit, sink);
        shares::check(&limit, sink);
    }
    reachability::check(policy, locations, sink);
    if is_complete {
        counting::check_denials(policy, locations, sink);
    }
}

/// A limit to check, with the locations of its fields.
struct LimitContext<'a> {
    index: usize,
    rule: &'a LimitRule,
    locations: &'a FieldLocations,
}

impl LimitContext<'_> {
    /// The location of a field, or of the limit's name if the file does not set the field.
    fn location(&self, field: &str) -> SourceLocation {
        self.locations
            .field_location(self.index, field)
            .unwrap_or(self.rule.name.location)
    }

    /// The limit's name for messages.
    fn name(&self) -> String {
        format!("limit `{}`", self.rule.name.value)
    }
}
