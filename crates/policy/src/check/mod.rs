//! What a policy means, as far as that can be wrong: names that clash, limits that no request reaches, quotas that admit
//! nothing, promises that a consistency cannot keep.
//!
//! Each file looks at one kind of mistake and reports all it finds. Must not know: how files are written or read.

mod consistency;
mod counting;
mod coverage;
mod hierarchy;
mod matching;
mod names;
mod quota;
mod reachability;
mod rollout;
mod shared_buckets;
mod tiers;

use crate::model::{LimitRule, Policy};
use crate::read::{DiagnosticSink, FieldLocations};
use crate::source::SourceLocation;

/// Reports what is wrong with a policy that could be read. Limits that could not are not in it.
pub(crate) fn check_policy(policy: &Policy, places: &FieldLocations, report: &mut DiagnosticSink) {
    let is_complete = report.len() == 0;
    names::check(policy, places, report);
    shared_buckets::check(policy, report);
    matching::check_lists(policy, report);
    for (index, rule) in policy.limits.iter().enumerate() {
        let limit = LimitContext {
            index,
            rule,
            locations: places,
        };
        matching::check(&limit, report);
        quota::check(&limit, report);
        tiers::check(&limit, report);
        hierarchy::check(&limit, report);
        counting::check(&limit, report);
        rollout::check(&limit, report);
        consistency::check(&limit, report);
    }
    reachability::check(policy, places, report);
    if is_complete {
        counting::check_denials(policy, places, report);
    }
}

/// A limit that is being checked, and where its fields stand.
struct LimitContext<'a> {
    index: usize,
    rule: &'a LimitRule,
    locations: &'a FieldLocations,
}

impl LimitContext<'_> {
    /// Where a field stands, or the limit's name where the file does not give it.
    fn location(&self, field: &str) -> SourceLocation {
        self.locations
            .field_location(self.index, field)
            .unwrap_or(self.rule.name.location)
    }

    /// The limit's name in messages.
    fn name(&self) -> String {
        format!("limit `{}`", self.rule.name.value)
    }
}
