//! Buckets that several limits share: they must say the same, and each has a stable, opaque id.
//!
//! Must not know: how the limits' requests are matched.

use std::collections::HashMap;
use std::hash::Hasher as _;

use siphasher::sip::SipHasher24;

use super::problem::problem;
use crate::model::LimitRule;
use crate::source::Diagnostic;

/// What clients are told of a bucket: 16 hexadecimal digits, the same in every process that shares the secret, and
/// nothing about the name.
pub(crate) fn opaque_id(name: &str, secret: [u8; 16]) -> Box<str> {
    let mut hasher = SipHasher24::new_with_key(&secret);
    hasher.write(b"bucket:");
    hasher.write(name.as_bytes());
    format!("{:016x}", hasher.finish()).into()
}

/// What is wrong where limits share a bucket and do not say the same of it.
pub(super) fn check_buckets(limits: &[LimitRule]) -> Vec<Diagnostic> {
    let mut first: HashMap<&str, &LimitRule> = HashMap::new();
    let mut problems = Vec::new();
    for limit in limits {
        let Some(bucket) = &limit.bucket else {
            continue;
        };
        let owner = *first.entry(&bucket.value).or_insert(limit);
        let differs = if owner.key != limit.key || owner.levels != limit.levels {
            "key"
        } else if owner.quota != limit.quota
            || owner.tiers != limit.tiers
            || owner.overrides != limit.overrides
            || owner.overdraft != limit.overdraft
        {
            "quota"
        } else if owner.candidate != limit.candidate {
            // What only one of them charges to the candidate's state would be missing for the other.
            "candidate"
        } else {
            continue;
        };
        problems.push(problem(
            bucket.location,
            &format!(
                "`{}` shares the bucket `{}` with `{}` but has another {differs}",
                limit.name.value, bucket.value, owner.name.value
            ),
            "limits that share a bucket need the same key, the same quota and the same candidate",
        ));
    }
    problems
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
