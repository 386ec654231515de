//! The occupancy of the tables, estimated from a sample.
//!
//! The keyed hash spreads keys evenly over groups, so a sample of groups represents all of them. The bounded sample
//! makes a metrics scrape cost the same for every store size. Must not know: what states mean beyond their priority,
//! who calls.

use tollgate_core::Timestamp;

use super::MemoryStore;
use super::eviction_priority::{EvictionPriorities, EvictionPriority};
use super::group::slots_per_group;
use super::hash::limit_of;
use super::slot_table::SlotTable;
use crate::clock::Clock;

/// The number of groups sampled in each table: all groups of a store for a hundred thousand keys, 4 MiB of a larger
/// one. The estimate is then within one percent.
const MAX_SAMPLED_GROUPS: usize = 32_768;

/// The occupancy of a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// Slots for one-word and two-word states together. About three sevenths of them are spare, so that keys find room
    /// in their primary group.
    pub slots: u64,
    /// Slots with a live state: exact in small stores, else within about one percent of `slots`.
    pub live: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// The occupancy of the store. The cost does not depend on its size, and no decision waits for it.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let now = self.now();
        let words = table_occupancy(self.word_table(), now, self.priorities());
        let pairs = table_occupancy(self.pair_table(), now, self.priorities());
        Occupancy {
            slots: words.slots.saturating_add(pairs.slots),
            live: words.live.saturating_add(pairs.live),
        }
    }
}

fn table_occupancy<const W: usize>(
    table: &SlotTable<W>,
    now: Timestamp,
    priorities: &EvictionPriorities,
) -> Occupancy {
    let all = count(table.slots());
    let sampled = table
        .slots()
        .min(MAX_SAMPLED_GROUPS.saturating_mul(slots_per_group(W)));
    let is_live = |number: &usize| {
        table.slot(*number).is_some_and(|slot| {
            let tag = slot.tag();
            tag != 0
                && priorities.priority_of(limit_of(tag), slot.peek_state(), now)
                    != EvictionPriority::Free
        })
    };
    let live = count((0..sampled).filter(is_live).count());
    let scaled = u128::from(live).saturating_mul(all.into()) / u128::from(count(sampled).max(1));
    Occupancy {
        slots: all,
        live: u64::try_from(scaled).unwrap_or(all),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::ManualClock;
    use crate::contract::{IdentifiedLimit, LimitId, Op, QuotaCheck};
    use crate::key::StoreKey;
    use std::num::NonZeroU16;
    use std::sync::Arc;
    use tollgate_core::{Nanos, Rate, TokenBucket};

    /// A store in which `spent` keys have just spent one unit that is refilled after ten seconds.
    fn used(keys: usize, spent: u32) -> (MemoryStore<Arc<ManualClock>>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let store = MemoryStore::with_clock(keys, Arc::clone(&clock)).unwrap();
        let bucket = TokenBucket::builder(Rate::new(1, Nanos::from_secs(10))).burst(5);
        let limit = IdentifiedLimit {
            id: LimitId(NonZeroU16::MIN),
            limit: bucket.build().unwrap().into(),
        };
        for n in 0..spent {
            let bytes = n.to_be_bytes();
            let check = QuotaCheck {
                key: StoreKey::new(&bytes).unwrap(),
                limit: &limit,
                op: Op::Spend(1),
            };
            assert!(store.decide_array([check]).unwrap().0.is_admitted());
        }
        (store, clock)
    }

    #[test]
    fn the_occupancy_of_a_small_store_is_exact() {
        let (store, clock) = used(1_000, 100);
        assert_eq!(store.occupancy().live, 100);
        assert!(store.occupancy().slots >= 2_000);
        // An expired state counts as absent, although it was not deleted.
        clock.advance(Nanos::from_secs(10));
        assert_eq!(store.occupancy().live, 0);
    }

    #[test]
    fn the_occupancy_of_a_large_store_is_estimated_from_a_sample() {
        // Seeds are random, so about one estimate in a hundred is exact by chance.
        let is_inexact = (0..4).any(|_| {
            let (store, _clock) = used(400_000, 50_000);
            let Occupancy { slots, live } = store.occupancy();
            assert!(live.abs_diff(50_000) <= slots / 100, "{live} of {slots}");
            live != 50_000
        });
        assert!(is_inexact, "only a sample is read");
    }
}
