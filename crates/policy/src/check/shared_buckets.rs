//! Checks that limits with the same bucket count in the same way, because they share its state.
//!
//! Must not know: what the bucket's id looks like.

use std::collections::HashMap;

use crate::model::{Consistency, LimitRule, Policy};
use crate::read::DiagnosticSink;

pub(super) fn check(policy: &Policy, sink: &mut DiagnosticSink) {
    let mut buckets: HashMap<&str, &LimitRule> = HashMap::new();
    for limit in &policy.limits {
        let Some(bucket) = &limit.bucket else {
            continue;
        };
        let first = *buckets.entry(&bucket.value).or_insert(limit);
        let differs = if first.key != limit.key {
            "key"
        } else if !first.quota.value.is_same_but_burst(&limit.quota.value) {
            "quota"
            // Leases and local counts are those of one quota.
        } else if first.quota != limit.quota && limit.consistency.value != Consistency::Exact {
            "burst"
        } else if first.tiers != limit.tiers {
            "tiers"
        } else if first.overrides != limit.overrides {
            "overrides"
        } else if first.overdraft != limit.overdraft {
            "overdraft"
        } else if first.candidate != limit.candidate {
            "candidate"
        } else if first.consistency != limit.consistency {
            "consistency"
        } else if first.when_full != limit.when_full {
            "when_full"
        } else if first.colocate != limit.colocate {
            "colocate"
        } else {
            continue;
        };
        sink.add(
            bucket.location,
            format!(
                "limits `{}` and `{}` share the bucket `{}` but have a different {differs}",
                first.name.value, limit.name.value, bucket.value
            ),
            format!(
                "use the same {differs} as `{}` on line {}, or another bucket",
                first.name.value, first.name.location.line
            ),
        );
    }
}
