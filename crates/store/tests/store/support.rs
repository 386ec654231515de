//! Shared helpers: ids, stores on a manual clock, a small random number generator.

use std::num::NonZeroU16;
use std::sync::Arc;

use tollgate_core::limit::Limit;
use tollgate_core::{Nanos, Rate, Timestamp, TokenBucket};
use tollgate_store::{IdentifiedLimit, LimitId, ManualClock, MemoryStore};

/// An instant far from 1970.
pub(crate) const START: Timestamp = Timestamp::from_secs(1_700_000_000);

pub(crate) type TestStore = MemoryStore<Arc<ManualClock>>;

pub(crate) fn id(number: u16) -> LimitId {
    LimitId(NonZeroU16::new(number).unwrap())
}

pub(crate) fn numbered_limit(number: u16, limit: impl Into<Limit>) -> IdentifiedLimit {
    IdentifiedLimit {
        id: id(number),
        limit: limit.into(),
    }
}

/// A store for this many keys whose clock stands at [`START`].
pub(crate) fn store(keys: usize) -> (TestStore, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(START));
    (
        MemoryStore::with_clock(keys, Arc::clone(&clock)).unwrap(),
        clock,
    )
}

/// A bucket that refills one unit per `interval`.
pub(crate) fn bucket(burst: u64, interval: Nanos) -> TokenBucket {
    let rate = Rate::new(1, interval);
    TokenBucket::builder(rate).burst(burst).build().unwrap()
}

/// Random numbers that repeat with the seed (splitmix64).
#[derive(Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let word = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}
