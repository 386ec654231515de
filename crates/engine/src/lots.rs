//! Names of leases that nobody can guess: who knows one could give another's place back.
//!
//! Must not know: what is leased.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_core::concurrency::LeaseId;

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
