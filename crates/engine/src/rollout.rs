//! Selects the keys that a limit is enforced for during a rollout.
//!
//! Must not know: how keys are built, what the share is for.

use std::hash::Hasher as _;

use siphasher::sip::SipHasher13;
use tollgate_policy::model::Percent;
use tollgate_policy::rules::{Rule, Rules};

/// Samples a share of a limit's keys. The selection depends only on the fleet's secret, the limit's identity and the
/// key. So it is the same for every request, after every reload and on every node. A key in one share is also in every
/// larger share.
#[derive(Clone, Copy)]
pub(crate) struct RolloutSampler {
    secret: [u8; 16],
}

impl RolloutSampler {
    pub(crate) fn new(rule: &Rule, rules: &Rules) -> Self {
        let identity = rule
            .meters
            .first()
            .map_or(&rule.name, |meter| &meter.identity);
        Self {
            secret: rules.digest(format!("enforce {identity}").as_bytes()),
        }
    }

    /// Whether a key belongs to this share.
    pub(crate) fn includes(&self, key: &[u8], share: Percent) -> bool {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(key);
        let bucket = hasher.finish() % u64::from(Percent::ALL.hundredths());
        bucket < u64::from(share.hundredths())
    }
}

impl std::fmt::Debug for RolloutSampler {
    /// Hides the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RolloutSampler").finish_non_exhaustive()
    }
}
