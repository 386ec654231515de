//! What is drawn: names of leases that nobody can guess, because who knows one could give another's place back; and which
//! keys a limit is enforced for while only a share of them is.
//!
//! Must not know: what is leased, how keys are made.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use siphasher::sip::SipHasher13;
use tollgate_core::concurrency::LeaseId;
use tollgate_policy::model::Percent;
use tollgate_policy::rules::{Rule, Rules};

/// Draws names; no two of one process are alike, and none tells the next.
#[derive(Debug, Default)]
pub(crate) struct Lots {
    keys: [RandomState; 2],
    drawn: AtomicU64,
}

impl Lots {
    pub(crate) fn draw(&self) -> LeaseId {
        let count = self.drawn.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self
            .keys
            .each_ref()
            .map(|key| u128::from(key.hash_one(count)));
        LeaseId(high << 64 | low)
    }
}

/// Draws a share of a limit's keys. A key's lot follows from the fleet's secret, the limit's identity and the key alone: it is
/// the same for every request, after every reload and on every node. A key that is drawn for a share is drawn for every
/// larger one.
#[derive(Clone, Copy)]
pub(crate) struct Draw {
    secret: [u8; 16],
}

impl Draw {
    pub(crate) fn of(rule: &Rule, rules: &Rules) -> Self {
        let identity = rule
            .meters
            .first()
            .map_or(&rule.name, |meter| &meter.identity);
        Self {
            secret: rules.digest(format!("enforce {identity}").as_bytes()),
        }
    }

    /// Whether a key belongs to this share of all keys.
    pub(crate) fn falls_to(&self, key: &[u8], share: Percent) -> bool {
        let mut hasher = SipHasher13::new_with_key(&self.secret);
        hasher.write(key);
        let lot = hasher.finish() % u64::from(Percent::ALL.hundredths());
        lot < u64::from(share.hundredths())
    }
}

impl std::fmt::Debug for Draw {
    /// What follows from the secret is not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Draw").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_are_alike_and_two_processes_draw_differently() {
        let (one, two) = (Lots::default(), Lots::default());
        let drawn: HashSet<LeaseId> = (0..1_000).flat_map(|_| [one.draw(), two.draw()]).collect();
        assert_eq!(drawn.len(), 2_000);
    }
}
