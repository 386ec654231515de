//! pingora-limits' `Rate`: counts in a sketch of four times 1,024 counters.
//!
//! Not the same thing as the others: it estimates how often a key was seen in an interval, of any number of keys in
//! fixed memory, and errs upwards as soon as there are more keys than counters. No state per key, nothing to look up.

use std::time::Duration;

use pingora_limits::rate::Rate;

use super::{Contender, Quota, count};
use crate::keys::Requests;

pub(super) struct Estimating {
    rate: Rate,
    most: isize,
}

impl Estimating {
    pub(super) fn new(quota: Quota) -> Self {
        let rate = Rate::new(Duration::from_secs(u64::from(quota.seconds)));
        Self {
            rate,
            most: isize::try_from(quota.burst).unwrap_or(isize::MAX),
        }
    }
}

impl Contender for Estimating {
    fn decide_all(&self, requests: &Requests, _alone: bool) -> u64 {
        count(
            requests
                .flat
                .iter()
                .map(|key| self.rate.observe(key, 1) <= self.most),
        )
    }

    fn decide(&self, key: &String) -> bool {
        // As bytes of the same length, so that it is the same key as in a sequence.
        let key: Result<&[u8; crate::keys::KEY_LEN], _> = key.as_bytes().try_into();
        key.is_ok_and(|key| self.rate.observe(key, 1) <= self.most)
    }
}
