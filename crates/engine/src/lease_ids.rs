//! Ids of permit leases that clients cannot guess: knowing one would allow releasing another client's permit.
//!
//! Must not know: what is leased.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::concurrency::LeaseId;

/// Generates unique, unpredictable ids.
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
    fn ids_are_unique_within_and_between_processes() {
        let (one, two) = (LeaseIdGenerator::default(), LeaseIdGenerator::default());
        let ids: HashSet<LeaseId> = (0..1_000)
            .flat_map(|_| [one.generate(), two.generate()])
            .collect();
        assert_eq!(ids.len(), 2_000);
    }
}
