//! The share pools of all limits, and the assignment of a bucket to which several limits apply.
//!
//! Must not know: clients, messages, how limits are found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};

use super::demand::DemandMeter;
use super::limits::SharedLimit;
use super::shares::{AssignmentTimes, SharePool};
use super::strategy::{LimitShare, Strategy};

/// A limit with more claims is planned at most once a second, because planning visits all claims.
const MANY_CLAIMS: usize = 64;

/// The share pools of all limits.
#[derive(Debug)]
pub(super) struct Pools {
    pools: HashMap<Arc<[u8]>, PoolEntry>,
    /// The limits that have changed since they were planned.
    changed: BTreeSet<Arc<[u8]>>,
    /// The number of claims on all limits, including those of disconnected clients.
    claims: usize,
    /// Until then a previous process's assignments may be in use.
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

/// The assignment that can be sent to a bucket now.
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

    /// Records a report about a bucket: its demand, if there is a new rate, and that earlier messages have arrived.
    pub(super) fn record_report(
        &mut self,
        claim: u64,
        limits: &[SharedLimit],
        demand: Option<&DemandMeter>,
        now: Timestamp,
    ) {
        for limit in limits {
            let entry = self.pools.entry(Arc::clone(&limit.key));
            let entry = entry.or_insert_with(|| PoolEntry {
                pool: SharePool::new(limit.units, self.opens_at),
                window: limit.window,
                planned: Timestamp::EPOCH,
            });
            if entry.pool.capacity() != limit.units {
                entry.pool.resize(limit.units);
            }
            entry.window = limit.window;
            let before = entry.pool.len();
            entry.pool.join(claim, useful_share(limit, limits));
            self.claims += entry.pool.len() - before;
            if let Some(demand) = demand {
                entry
                    .pool
                    .record_demand(claim, demand.in_window(limit.window));
            }
            entry.pool.confirm_delivery(claim, now, &self.spans);
            self.changed.insert(Arc::clone(&limit.key));
        }
    }

    pub(super) const fn claims(&self) -> usize {
        self.claims
    }

    /// Records that these limits no longer apply to a bucket.
    pub(super) fn leave(&mut self, claim: u64, limits: &[SharedLimit]) {
        for limit in limits {
            if let Some(entry) = self.pools.get_mut(&limit.key) {
                let before = entry.pool.len();
                entry.pool.leave(claim);
                self.claims -= before - entry.pool.len();
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// Records that earlier messages about a bucket have arrived.
    pub(super) fn confirm_delivery(&mut self, claim: u64, limits: &[SharedLimit], now: Timestamp) {
        for limit in limits {
            if let Some(entry) = self.pools.get_mut(&limit.key)
                && entry.pool.confirm_delivery(claim, now, &self.spans)
            {
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// Records that a client was told to abandon a bucket.
    pub(super) fn record_abandoned(&mut self, claim: u64, limits: &[SharedLimit], now: Timestamp) {
        for limit in limits {
            if let Some(entry) = self.pools.get_mut(&limit.key) {
                entry.pool.record_sent(claim, 0, now, &self.spans);
            }
        }
    }

    /// Releases expired shares.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let has_opened = !self.is_open && now >= self.opens_at;
        self.is_open |= has_opened;
        let mut claims = 0;
        self.pools.retain(|key, entry| {
            if entry.pool.expire(now, &self.spans) || has_opened {
                self.changed.insert(Arc::clone(key));
            }
            claims += entry.pool.len();
            entry.pool.len() > 0
        });
        self.claims = claims;
    }

    /// Plans every limit that has changed. Returns the claims with a new share.
    pub(super) fn plan(&mut self, now: Timestamp) -> Vec<u64> {
        let mut changed_claims = Vec::new();
        self.changed.retain(|key| {
            let Some(entry) = self.pools.get_mut(key) else {
                return false;
            };
            let is_soon = now.since(entry.planned) < Nanos::SECOND;
            if is_soon && entry.pool.len() > MANY_CLAIMS {
                return true;
            }
            entry.planned = now;
            changed_claims.extend(entry.pool.plan(now));
            false
        });
        changed_claims
    }

    /// The assignment that can be sent to a bucket now. `None` while one of its limits has no share for it.
    pub(super) fn offer(
        &self,
        claim: u64,
        limits: &[SharedLimit],
        now: Timestamp,
    ) -> Option<ShareOffer> {
        let mut shares = Vec::with_capacity(limits.len());
        let mut parts = Vec::with_capacity(limits.len());
        for limit in limits {
            let entry = self.pools.get(&limit.key)?;
            let units = entry.pool.offer(claim, now)?;
            shares.push(units);
            parts.push(LimitShare {
                units,
                window: entry.window,
            });
        }
        let strategy = Strategy::from_shares(&parts);
        Some(ShareOffer { shares, strategy })
    }

    /// Whether an offer differs from the shares that were last sent.
    pub(super) fn has_changed(
        &self,
        claim: u64,
        limits: &[SharedLimit],
        offer: &ShareOffer,
    ) -> bool {
        limits.iter().zip(&offer.shares).any(|(limit, share)| {
            let entry = self.pools.get(&limit.key);
            entry.and_then(|entry| entry.pool.last_sent_share(claim)) != Some(*share)
        })
    }

    /// Records that an offer was sent.
    pub(super) fn record_sent(
        &mut self,
        claim: u64,
        limits: &[SharedLimit],
        offer: &ShareOffer,
        now: Timestamp,
    ) {
        for (limit, share) in limits.iter().zip(&offer.shares) {
            if let Some(entry) = self.pools.get_mut(&limit.key) {
                entry.pool.record_sent(claim, *share, now, &self.spans);
            }
        }
    }
}

/// The largest share of a limit that a bucket can use, given its other limits. What those would deny anyway is better
/// assigned to other buckets.
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
    fn the_useful_share_of_a_limit_is_bounded_by_the_other_limits() {
        let (narrow, wide) = (limit(5, Nanos::SECOND), limit(6_000, Nanos::MINUTE));
        let both = [narrow, wide];
        assert_eq!(useful_share(&both[0], &both), 5);
        assert_eq!(useful_share(&both[1], &both), 300);
        let both = [limit(50, Nanos::HOUR), limit(20, Nanos::SECOND)];
        // All fifty can be used at once, as far as twenty per second allow it.
        assert_eq!(useful_share(&both[1], &both), 20);
        assert_eq!(useful_share(&both[0], &both), 50);
    }
}
