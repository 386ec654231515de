//! The least that an exact limiter does for one decision: a hash, a clock, a slot somewhere in as much memory as ours takes, and one
//! compare-and-swap.
//!
//! It is no limiter. A slot is found by the hash alone, so keys that meet share it, and nothing is ever inserted or evicted.

use std::hash::BuildHasher as _;
use std::sync::atomic::{AtomicU64, Ordering};

use tollgate_store::{Clock as _, SystemClock};

use super::{Contender, Quota, count};
use crate::keys::Requests;

/// Bytes that our store takes for a key: see the study `resident`.
const BYTES_PER_KEY: usize = 36;

/// A tag and a state, as ours. The tag is not used.
type Slot = [AtomicU64; 2];

pub(super) struct LockedSlot {
    slots: Box<[Slot]>,
    hasher: foldhash::fast::RandomState,
    clock: SystemClock,
    interval: u64,
    capacity: u64,
}

impl LockedSlot {
    pub(super) fn new(quota: Quota, keys: usize) -> Self {
        let slots = (keys * BYTES_PER_KEY).div_ceil(size_of::<Slot>());
        let interval = quota.interval();
        Self {
            slots: (0..slots).map(|_| Slot::default()).collect(),
            hasher: foldhash::fast::RandomState::default(),
            clock: SystemClock::new(),
            interval,
            capacity: interval.saturating_mul(quota.burst.into()),
        }
    }

    fn spend(&self, key: &[u8]) -> bool {
        let hash = u128::from(self.hasher.hash_one(key));
        let index = usize::try_from((hash * self.slots.len() as u128) >> 64).unwrap_or(0);
        let Some([_, state]) = self.slots.get(index) else {
            return false;
        };
        let now = self.clock.now().as_nanos();
        let mut before = state.load(Ordering::Relaxed);
        loop {
            let next = before.max(now).saturating_add(self.interval);
            if next > now.saturating_add(self.capacity) {
                return false;
            }
            match state.compare_exchange(before, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => before = other,
            }
        }
    }
}

impl Contender for LockedSlot {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(requests.flat.iter().map(|key| self.spend(key)))
    }

    fn decide(&self, key: &String) -> bool {
        self.spend(key.as_bytes())
    }
}
