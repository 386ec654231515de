//! Shared buckets: limits that share one must have equal settings, and each bucket has a stable, opaque id.
//!
//! Must not know: how the limits' requests are matched.

use std::collections::HashMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use tollgate_core::limit::Limit;

use crate::model::LimitRule;
use crate::rules::{DraftLimit, share_state};
use crate::source::Diagnostic;

/// The bucket id for clients: 16 hexadecimal digits. It is the same in every process with the same secret and does not
/// reveal the name.
pub(crate) fn opaque_id(name: &str, secret: [u8; 16]) -> Box<str> {
    let mut hasher = SipHasher24::new_with_key(&secret);
    hasher.write(b"bucket:");
    hasher.write(name.as_bytes());
    format!("{:016x}", hasher.finish()).into()
}

/// Reports limits that share a bucket but have different settings.
pub(super) fn check_buckets(limits: &[LimitRule]) -> Vec<Diagnostic> {
    let mut first: HashMap<&str, &LimitRule> = HashMap::new();
    let mut diagnostics = Vec::new();
    for limit in limits {
        let Some(bucket) = &limit.bucket else {
            continue;
        };
        let owner = *first.entry(&bucket.value).or_insert(limit);
        let differs = if owner.key != limit.key || owner.levels != limit.levels {
            "key"
        } else if !owner.quota.value.is_same_but_burst(&limit.quota.value)
            || owner.tiers != limit.tiers
            || owner.overrides != limit.overrides
            || owner.overdraft != limit.overdraft
        {
            "quota"
        } else if owner.candidate != limit.candidate {
            // Otherwise the candidate's state would miss the charges of the other limit.
            "candidate"
        } else {
            continue;
        };
        diagnostics.push(Diagnostic::new(
            bucket.location,
            format!(
                "`{}` shares the bucket `{}` with `{}` but has a different {differs}",
                limit.name.value, bucket.value, owner.name.value
            ),
            "limits that share a bucket need the same key, quota and candidate",
        ));
    }
    diagnostics
}

/// Raises the ceiling of every quota that shares a bucket to the largest of all, so that a smaller burst forgives nothing that a larger one
/// has admitted.
pub(super) fn share_ceilings(limits: &mut [DraftLimit]) {
    let mut widest: HashMap<Box<str>, Limit> = HashMap::new();
    let is_shared = |limit: &DraftLimit| limit.rule.bucket.is_some();
    for limit in limits.iter().filter(|limit| is_shared(limit)) {
        for meter in &limit.rule.meters {
            for quota in &meter.quotas {
                let known = widest.entry(meter.identity.clone()).or_insert(*quota);
                *known = share_state(*known, quota);
            }
        }
    }
    for limit in limits.iter_mut().filter(|limit| is_shared(limit)) {
        for meter in &mut limit.rule.meters {
            let top = widest.get(&meter.identity);
            for (quota, top) in meter.quotas.iter_mut().zip(top.into_iter().cycle()) {
                *quota = share_state(*quota, top);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_opaque_stable_and_keyed_by_the_secret() {
        let id = opaque_id("messages", [7; 16]);
        assert_eq!(id, opaque_id("messages", [7; 16]));
        assert_eq!(id.len(), 16);
        assert!(id.chars().all(|c| c.is_ascii_hexdigit()));
        assert_ne!(id, opaque_id("messages", [8; 16]));
        assert_ne!(id, opaque_id("message", [7; 16]));
    }
}
