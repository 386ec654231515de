//! All limits that are shared out, each with its claims, and what a bucket that is under several of them may be told.
//!
//! Must not know: clients, messages, how limits are found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};

use super::demand::DemandMeter;
use super::limits::SharedLimit;
use super::shares::{AssignmentTimes, SharePool};
use super::strategy::{LimitShare, Strategy};

/// A limit with more claims than this is planned no more than once a second: planning looks at all of them.
const MANY_CLAIMS: usize = 64;

/// All of them.
#[derive(Debug)]
pub(super) struct Pools {
    pools: HashMap<Arc<[u8]>, PoolEntry>,
    /// Those of which something has changed since they were planned.
    changed: BTreeSet<Arc<[u8]>>,
    /// How many claims there are on all of them, also of those who are gone but hold something.
    claims: usize,
    /// Until then whoever was here before us may have given out everything.
    opens_at: Timestamp,
    is_open: bool,
    spans: AssignmentTimes,
}

#[derive(Debug)]
struct PoolEntry {
    pool: SharePool,
    window: Nanos,
    planned: Timestamp,
}

/// What a bucket can be told now.
#[derive(Debug)]
pub(super) struct ShareOffer {
    shares: Vec<u64>,
    pub(super) strategy: Strategy,
}

impl Pools {
    pub(super) fn new(opens: Timestamp, spans: AssignmentTimes) -> Self {
        Self {
            pools: HashMap::new(),
            changed: BTreeSet::new(),
            claims: 0,
            opens_at: opens,
            is_open: false,
            spans,
        }
    }

    /// A report about a bucket: what it would use, if that is known anew, and that what was sent before has arrived.
    pub(super) fn record_report(
        &mut self,
        claim: u64,
        limits: &[SharedLimit],
        demand: Option<&DemandMeter>,
        now: Timestamp,
    ) {
        for limit in limits {
            let kept = self.pools.entry(Arc::clone(&limit.key));
            let kept = kept.or_insert_with(|| PoolEntry {
                pool: SharePool::new(limit.units, self.opens_at),
                window: limit.window,
                planned: Timestamp::EPOCH,
            });
            if kept.pool.capacity() != limit.units {
                kept.pool.resize(limit.units);
            }
            kept.window = limit.window;
            let before = kept.pool.len();
            kept.pool.join(claim, useful_share(limit, limits));
            self.claims += kept.pool.len() - before;
            if let Some(demand) = demand {
                kept.pool
                    .record_demand(claim, demand.in_window(limit.window));
            }
            kept.pool.confirm_delivery(claim, now, &self.spans);
            self.changed.insert(Arc::clone(&limit.key));
        }
    }

    pub(super) const fn claims(&self) -> usize {
        self.claims
    }

    /// A bucket is not under these limits any more.
    pub(super) fn leave(&mut self, claim: u64, limits: &[SharedLimit]) {
        for limit in limits {
            if let Some(kept) = self.pools.get_mut(&limit.key) {
                let before = kept.pool.len();
                kept.pool.leave(claim);
                self.claims -= before - kept.pool.len();
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// What a bucket was sent before has arrived.
    pub(super) fn confirm_delivery(&mut self, claim: u64, limits: &[SharedLimit], now: Timestamp) {
        for limit in limits {
            if let Some(kept) = self.pools.get_mut(&limit.key)
                && kept.pool.confirm_delivery(claim, now, &self.spans)
            {
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// A bucket was told to be forgotten.
    pub(super) fn record_abandoned(&mut self, claim: u64, limits: &[SharedLimit], now: Timestamp) {
        for limit in limits {
            if let Some(kept) = self.pools.get_mut(&limit.key) {
                kept.pool.record_sent(claim, 0, now, &self.spans);
            }
        }
    }

    /// Time has passed.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let has_opened = !self.is_open && now >= self.opens_at;
        self.is_open |= has_opened;
        let mut claims = 0;
        self.pools.retain(|key, kept| {
            if kept.pool.expire(now, &self.spans) || has_opened {
                self.changed.insert(Arc::clone(key));
            }
            claims += kept.pool.len();
            kept.pool.len() > 0
        });
        self.claims = claims;
    }

    /// Plans every limit of which something has changed, and answers whose claims are to be looked at.
    pub(super) fn plan(&mut self, now: Timestamp) -> Vec<u64> {
        let mut news = Vec::new();
        self.changed.retain(|key| {
            let Some(kept) = self.pools.get_mut(key) else {
                return false;
            };
            let is_soon = now.since(kept.planned) < Nanos::SECOND;
            if is_soon && kept.pool.len() > MANY_CLAIMS {
                return true;
            }
            kept.planned = now;
            news.extend(kept.pool.plan(now));
            false
        });
        news
    }

    /// What a bucket can be told now; nothing while one of its limits has nothing for it.
    pub(super) fn offer(
        &self,
        claim: u64,
        limits: &[SharedLimit],
        now: Timestamp,
    ) -> Option<ShareOffer> {
        let mut shares = Vec::with_capacity(limits.len());
        let mut parts = Vec::with_capacity(limits.len());
        for limit in limits {
            let kept = self.pools.get(&limit.key)?;
            let units = kept.pool.offer(claim, now)?;
            shares.push(units);
            parts.push(LimitShare {
                units,
                window: kept.window,
            });
        }
        let strategy = Strategy::from_shares(&parts);
        Some(ShareOffer { shares, strategy })
    }

    /// Whether an offer is other than what the bucket's claims are on record with.
    pub(super) fn has_changed(
        &self,
        claim: u64,
        limits: &[SharedLimit],
        offer: &ShareOffer,
    ) -> bool {
        limits.iter().zip(&offer.shares).any(|(limit, share)| {
            let kept = self.pools.get(&limit.key);
            kept.and_then(|kept| kept.pool.last_sent_share(claim)) != Some(*share)
        })
    }

    /// It was told that.
    pub(super) fn record_sent(
        &mut self,
        claim: u64,
        limits: &[SharedLimit],
        offer: &ShareOffer,
        now: Timestamp,
    ) {
        for (limit, share) in limits.iter().zip(&offer.shares) {
            if let Some(kept) = self.pools.get_mut(&limit.key) {
                kept.pool.record_sent(claim, *share, now, &self.spans);
            }
        }
    }
}

/// The most of a limit that is of use to a bucket, given the others that it is under: what they would not let through
/// anyway is better left to others.
fn useful_share(limit: &SharedLimit, all: &[SharedLimit]) -> u64 {
    let by_others = all.iter().map(|other| {
        let in_window = u128::from(other.units)
            .saturating_mul(limit.window.as_nanos().into())
            .div_ceil(u128::from(other.window.as_nanos().max(1)));
        let in_window = u64::try_from(in_window).unwrap_or(u64::MAX);
        in_window.max(other.units)
    });
    by_others.min().unwrap_or(limit.units).min(limit.units)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units: u64, window: Nanos) -> SharedLimit {
        SharedLimit {
            key: Arc::from(&units.to_be_bytes()[..]),
            units,
            window,
        }
    }

    #[test]
    fn of_a_wide_limit_no_more_is_of_use_than_a_narrow_one_lets_through() {
        let (narrow, wide) = (limit(5, Nanos::SECOND), limit(6_000, Nanos::MINUTE));
        let both = [narrow, wide];
        assert_eq!(useful_share(&both[0], &both), 5);
        assert_eq!(useful_share(&both[1], &both), 300);
        let both = [limit(50, Nanos::HOUR), limit(20, Nanos::SECOND)];
        // All fifty at once are of use, as far as twenty a second let them.
        assert_eq!(useful_share(&both[1], &both), 20);
        assert_eq!(useful_share(&both[0], &both), 50);
    }
}
