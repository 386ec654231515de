//! Tollgate's memory store: the short path for one token bucket, and a batch of one with its full answer.

use std::hint::black_box;
use std::num::NonZeroU16;

use tollgate_core::{Nanos, Rate, TokenBucket};
use tollgate_store::{IdentifiedLimit, LimitId, MemoryStore, Op, QuotaCheck, StoreKey};

use super::{Contender, Quota, count};
use crate::keys::Requests;

/// `MemoryStore::spend`.
pub(super) struct Tollgate {
    store: MemoryStore,
    id: LimitId,
    quota: TokenBucket,
}

/// `MemoryStore::decide_array` with one check: what is left, when it is full again, and a receipt besides the outcome.
pub(super) struct TollgateBatch {
    store: MemoryStore,
    limit: IdentifiedLimit,
}

/// The token bucket of a quota.
pub(crate) fn bucket(quota: Quota) -> TokenBucket {
    TokenBucket::builder(Rate::new(
        u64::from(quota.count),
        Nanos::from_secs(u64::from(quota.seconds)),
    ))
    .burst(u64::from(quota.burst))
    .build()
    .unwrap_or_else(|error| panic!("{quota:?}: {error}"))
}

fn store(keys: usize) -> MemoryStore {
    MemoryStore::for_keys(keys).unwrap_or_else(|error| panic!("{keys} keys: {error}"))
}

impl Tollgate {
    pub(super) fn new(quota: Quota, keys: usize) -> Self {
        let (id, quota) = (LimitId(NonZeroU16::MIN), bucket(quota));
        let store = store(keys);
        store.add_limit(&IdentifiedLimit {
            id,
            limit: quota.into(),
        });
        Self { store, id, quota }
    }

    fn spend(&self, key: &[u8]) -> bool {
        StoreKey::new(key).is_ok_and(|key| {
            self.store
                .spend(&key, self.id, black_box(&self.quota), 1)
                .is_admitted()
        })
    }
}

impl Contender for Tollgate {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(requests.flat.iter().map(|key| self.spend(key)))
    }

    fn decide(&self, key: &String) -> bool {
        self.spend(key.as_bytes())
    }
}

impl TollgateBatch {
    pub(super) fn new(quota: Quota, keys: usize) -> Self {
        let limit = IdentifiedLimit {
            id: LimitId(NonZeroU16::MIN),
            limit: bucket(quota).into(),
        };
        let store = store(keys);
        store.add_limit(&limit);
        Self { store, limit }
    }

    fn decide_batch(&self, key: &[u8]) -> bool {
        let Ok(key) = StoreKey::new(key) else {
            return false;
        };
        let check = QuotaCheck {
            key,
            limit: black_box(&self.limit),
            op: Op::Spend(1),
        };
        black_box(self.store.decide_array([check])).is_ok_and(|(verdict, _)| verdict.is_admitted())
    }
}

impl Contender for TollgateBatch {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(requests.flat.iter().map(|key| self.decide_batch(key)))
    }

    fn decide(&self, key: &String) -> bool {
        self.decide_batch(key.as_bytes())
    }
}
