//! How full the tables are, found out by looking at a part of them.
//!
//! Keys are spread evenly over groups by a secret hash, so a part of the groups says as much as all of them; looking at
//! a bounded part costs whoever asks, say a scrape of metrics, the same however large the store is. Must not know: what
//! states mean beyond their worth, who asks.

use tollgate_core::Timestamp;

use super::MemoryStore;
use super::eviction_priority::{EvictionPriorities, EvictionPriority};
use super::group::slots_per_group;
use super::hash::limit_of;
use super::slot_table::SlotTable;
use crate::clock::Clock;

/// So many groups of each table are looked at: all of a store for a hundred thousand keys, 4 MiB of a larger one, whose
/// share is then known to within one percent.
const MOST_GROUPS: usize = 32_768;

/// How full a store is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Occupancy {
    /// How many slots there are for states of one and of two words together. Slots beyond about four sevenths of them
    /// are there so that keys find room next to their home.
    pub slots: u64,
    /// How many of them hold a state that still counts: exact in small stores, else within about one percent of `slots`.
    pub live: u64,
}

impl<C: Clock> MemoryStore<C> {
    /// How full the store is. Costs the same whatever its size, and holds nobody up.
    #[must_use]
    pub fn occupancy(&self) -> Occupancy {
        let now = self.now();
        let words = of_table(self.word_table(), now, self.priorities());
        let pairs = of_table(self.pair_table(), now, self.priorities());
        Occupancy {
            slots: words.slots.saturating_add(pairs.slots),
            live: words.live.saturating_add(pairs.live),
        }
    }
}

fn of_table<const W: usize>(
    table: &SlotTable<W>,
    now: Timestamp,
    worths: &EvictionPriorities,
) -> Occupancy {
    let all = count(table.slots());
    let seen = table
        .slots()
        .min(MOST_GROUPS.saturating_mul(slots_per_group(W)));
    let is_live = |number: &usize| {
        table.slot(*number).is_some_and(|slot| {
            let tag = slot.tag();
            tag != 0
                && worths.priority_of(limit_of(tag), slot.peek_state(), now)
                    != EvictionPriority::Free
        })
    };
    let live = count((0..seen).filter(is_live).count());
    let scaled = u128::from(live).saturating_mul(all.into()) / u128::from(count(seen).max(1));
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

    /// A store in which so many keys have just spent one unit that is back after ten seconds.
    fn used(keys: usize, spent: u32) -> (MemoryStore<Arc<ManualClock>>, Arc<ManualClock>) {
        let clock = Arc::new(ManualClock::at(Timestamp::from_secs(1_700_000_000)));
        let store = MemoryStore::with_clock(keys, Arc::clone(&clock)).unwrap();
        let bucket = TokenBucket::builder(Rate::new(1, Nanos::from_secs(10))).burst(5);
        let ruled = IdentifiedLimit {
            id: LimitId(NonZeroU16::MIN),
            limit: bucket.build().unwrap().into(),
        };
        for n in 0..spent {
            let bytes = n.to_be_bytes();
            let check = QuotaCheck {
                key: StoreKey::new(&bytes).unwrap(),
                limit: &ruled,
                op: Op::Spend(1),
            };
            assert!(store.decide_array([check]).unwrap().0.is_admitted());
        }
        (store, clock)
    }

    #[test]
    fn a_small_store_knows_exactly_how_many_states_count() {
        let (store, clock) = used(1_000, 100);
        assert_eq!(store.occupancy().live, 100);
        assert!(store.occupancy().slots >= 2_000);
        // Expired equals absent, though nothing was swept.
        clock.advance(Nanos::from_secs(10));
        assert_eq!(store.occupancy().live, 0);
    }

    #[test]
    fn a_large_store_is_known_by_a_part_of_it() {
        let (store, _clock) = used(400_000, 50_000);
        let Occupancy { slots, live } = store.occupancy();
        assert!(live.abs_diff(50_000) <= slots / 100, "{live} of {slots}");
        assert_ne!(live, 50_000, "only a part was looked at");
    }
}
