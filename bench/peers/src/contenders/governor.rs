//! governor's keyed limiter with its `DashMap` state store and default clock.
//!
//! It looks keys up by `&K`. With `String` keys, which is what most callers have, the caller needs a `String` at hand;
//! it gets one, made beforehand. With keys of a fixed size there is nothing to follow: the kindest case.

use std::hash::Hash;
use std::num::NonZeroU32;
use std::time::Duration;

use governor::clock::DefaultClock;
use governor::state::keyed::DashMapStateStore;
use governor::{Quota as TheirQuota, RateLimiter};

use super::{Contender, Quota, count};
use crate::keys::{KEY_LEN, Requests};

type Limiter<K> = RateLimiter<K, DashMapStateStore<K>, DefaultClock>;

pub(super) struct ByString(Limiter<String>);
pub(super) struct ByArray(Limiter<[u8; KEY_LEN]>);

fn limiter<K: Hash + Eq + Clone>(quota: Quota) -> Limiter<K> {
    let burst = NonZeroU32::new(quota.burst).unwrap_or(NonZeroU32::MIN);
    let quota = TheirQuota::with_period(Duration::from_nanos(quota.interval()))
        .unwrap_or_else(|| panic!("{quota:?} has no interval"))
        .allow_burst(burst);
    RateLimiter::dashmap(quota)
}

impl ByString {
    pub(super) fn new(quota: Quota) -> Self {
        Self(limiter(quota))
    }
}

impl ByArray {
    pub(super) fn new(quota: Quota) -> Self {
        Self(limiter(quota))
    }
}

impl Contender for ByString {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(
            requests
                .owned
                .iter()
                .map(|key| self.0.check_key(key).is_ok()),
        )
    }

    fn decide(&self, key: &String) -> bool {
        self.0.check_key(key).is_ok()
    }
}

impl Contender for ByArray {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(
            requests
                .flat
                .iter()
                .map(|key| self.0.check_key(key).is_ok()),
        )
    }

    fn decide(&self, key: &String) -> bool {
        key.as_bytes()
            .try_into()
            .is_ok_and(|key| self.0.check_key(&key).is_ok())
    }
}
