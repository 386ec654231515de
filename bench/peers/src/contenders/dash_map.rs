//! What one writes oneself in ten minutes: a `DashMap` from key to tokens and the time they were counted.
//!
//! Never forgets a key and never shrinks. Floating point, as everyone writes it first.

use std::time::Instant;

use dashmap::DashMap;

use super::{Contender, Quota, count};
use crate::keys::Requests;

pub(super) struct Buckets {
    buckets: DashMap<Box<[u8]>, Bucket>,
    per_second: f64,
    burst: f64,
}

struct Bucket {
    tokens: f64,
    counted: Instant,
}

impl Buckets {
    pub(super) fn new(quota: Quota) -> Self {
        Self {
            buckets: DashMap::new(),
            per_second: f64::from(quota.count) / f64::from(quota.seconds),
            burst: f64::from(quota.burst),
        }
    }

    fn spend(&self, key: &[u8]) -> bool {
        let now = Instant::now();
        if let Some(mut bucket) = self.buckets.get_mut(key) {
            return bucket.spend(now, self.per_second, self.burst);
        }
        let mut bucket = self.buckets.entry(key.into()).or_insert(Bucket {
            tokens: self.burst,
            counted: now,
        });
        bucket.spend(now, self.per_second, self.burst)
    }
}

impl Bucket {
    fn spend(&mut self, now: Instant, per_second: f64, burst: f64) -> bool {
        let gone = now.saturating_duration_since(self.counted).as_secs_f64();
        self.tokens = (self.tokens + gone * per_second).min(burst);
        self.counted = now;
        let is_there = self.tokens >= 1.0;
        if is_there {
            self.tokens -= 1.0;
        }
        is_there
    }
}

impl Contender for Buckets {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(requests.flat.iter().map(|key| self.spend(key)))
    }

    fn decide(&self, key: &String) -> bool {
        self.spend(key.as_bytes())
    }
}
