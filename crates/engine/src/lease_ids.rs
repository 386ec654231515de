//! Ids of leases that nobody can guess: a client that knows one could give another client's place back.
//!
//! Must not know: what is leased.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::concurrency::LeaseId;

/// Makes ids; no two of one process are alike, and none tells the next.
#[derive(Debug, Default)]
pub(crate) struct LeaseIdGenerator {
    keys: [RandomState; 2],
    generated: AtomicU64,
}

impl LeaseIdGenerator {
    pub(crate) fn generate(&self) -> LeaseId {
        let count = self.generated.fetch_add(1, Ordering::Relaxed);
        let [high, low] = self
            .keys
            .each_ref()
            .map(|key| u128::from(key.hash_one(count)));
        LeaseId(high << 64 | low)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn no_two_are_alike_and_two_processes_make_different_ones() {
        let (one, two) = (LeaseIdGenerator::default(), LeaseIdGenerator::default());
        let ids: HashSet<LeaseId> = (0..1_000)
            .flat_map(|_| [one.generate(), two.generate()])
            .collect();
        assert_eq!(ids.len(), 2_000);
    }
}
