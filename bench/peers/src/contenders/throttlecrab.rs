//! throttlecrab's limiter over its periodic store, which is given its capacity and cleans up once a minute.
//!
//! Its adaptive store would look through everything on every request while it grows past three quarters of its
//! capacity. Deciding needs `&mut self`: one thread holds the lock for a whole sequence and so pays nothing for it;
//! two take turns.

use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use throttlecrab::{PeriodicStore, RateLimiter};

use super::{Contender, Quota, count};
use crate::keys::Requests;

type Limiter = RateLimiter<PeriodicStore>;

pub(super) struct Locked {
    limiter: Mutex<Limiter>,
    quota: Quota,
}

impl Locked {
    pub(super) fn new(quota: Quota, keys: usize) -> Self {
        let limiter = Mutex::new(RateLimiter::new(PeriodicStore::with_capacity(keys)));
        Self { limiter, quota }
    }

    fn ask(&self, limiter: &mut Limiter, key: &str) -> bool {
        let Quota {
            count,
            seconds,
            burst,
        } = self.quota;
        let now = SystemTime::now();
        limiter
            .rate_limit(
                key,
                i64::from(burst),
                i64::from(count),
                i64::from(seconds),
                1,
                now,
            )
            .is_ok_and(|(admitted, _)| admitted)
    }

    fn ask_in_turn(&self, key: &str) -> bool {
        self.ask(
            &mut self.limiter.lock().unwrap_or_else(PoisonError::into_inner),
            key,
        )
    }
}

impl Contender for Locked {
    fn decide_all(&self, requests: &Requests, alone: bool) -> u64 {
        if alone {
            let mut limiter = self.limiter.lock().unwrap_or_else(PoisonError::into_inner);
            return count(requests.texts().map(|key| self.ask(&mut limiter, key)));
        }
        count(requests.texts().map(|key| self.ask_in_turn(key)))
    }

    fn decide(&self, key: &String) -> bool {
        self.ask_in_turn(key)
    }
}
