//! All limits that are shared out, each with its claims, and what a bucket that is under several of them may be told.
//!
//! Must not know: clients, messages, how limits are found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tollgate_core::{Nanos, Timestamp};

use super::demand::Demand;
use super::limits::Limit;
use super::shares::{Pool, Spans};
use super::strategy::{Share, Strategy};

/// A limit with more claims than this is planned no more than once a second: planning looks at all of them.
const MANY: usize = 64;

/// All of them.
#[derive(Debug)]
pub(super) struct Pools {
    of: HashMap<Arc<[u8]>, PoolEntry>,
    /// Those of which something has changed since they were planned.
    changed: BTreeSet<Arc<[u8]>>,
    /// How many claims there are on all of them, also of those who are gone but hold something.
    claims: usize,
    /// Until then whoever was here before us may have given out everything.
    opens: Timestamp,
    is_open: bool,
    spans: Spans,
}

#[derive(Debug)]
struct PoolEntry {
    pool: Pool,
    window: Nanos,
    planned: Timestamp,
}

/// What a bucket can be told now.
#[derive(Debug)]
pub(super) struct Offer {
    shares: Vec<u64>,
    pub(super) strategy: Strategy,
}

impl Pools {
    pub(super) fn opening(opens: Timestamp, spans: Spans) -> Self {
        Self {
            of: HashMap::new(),
            changed: BTreeSet::new(),
            claims: 0,
            opens,
            is_open: false,
            spans,
        }
    }

    /// A report about a bucket: what it would use, if that is known anew, and that what was sent before has arrived.
    pub(super) fn hear(
        &mut self,
        claim: u64,
        limits: &[Limit],
        demand: Option<&Demand>,
        now: Timestamp,
    ) {
        for limit in limits {
            let kept = self.of.entry(Arc::clone(&limit.key));
            let kept = kept.or_insert_with(|| PoolEntry {
                pool: Pool::new(limit.units, self.opens),
                window: limit.window,
                planned: Timestamp::EPOCH,
            });
            if kept.pool.capacity() != limit.units {
                kept.pool.resize(limit.units);
            }
            kept.window = limit.window;
            let before = kept.pool.len();
            kept.pool.join(claim, most_of_use(limit, limits));
            self.claims += kept.pool.len() - before;
            if let Some(demand) = demand {
                kept.pool.wants(claim, demand.in_window(limit.window));
            }
            kept.pool.reported(claim, now, &self.spans);
            self.changed.insert(Arc::clone(&limit.key));
        }
    }

    pub(super) const fn claims(&self) -> usize {
        self.claims
    }

    /// A bucket is not under these limits any more.
    pub(super) fn leave(&mut self, claim: u64, limits: &[Limit]) {
        for limit in limits {
            if let Some(kept) = self.of.get_mut(&limit.key) {
                let before = kept.pool.len();
                kept.pool.leave(claim);
                self.claims -= before - kept.pool.len();
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// What a bucket was sent before has arrived.
    pub(super) fn reported(&mut self, claim: u64, limits: &[Limit], now: Timestamp) {
        for limit in limits {
            if let Some(kept) = self.of.get_mut(&limit.key)
                && kept.pool.reported(claim, now, &self.spans)
            {
                self.changed.insert(Arc::clone(&limit.key));
            }
        }
    }

    /// A bucket was told to be forgotten.
    pub(super) fn sent_nothing(&mut self, claim: u64, limits: &[Limit], now: Timestamp) {
        for limit in limits {
            if let Some(kept) = self.of.get_mut(&limit.key) {
                kept.pool.sent(claim, 0, now, &self.spans);
            }
        }
    }

    /// Time has passed.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let has_opened = !self.is_open && now >= self.opens;
        self.is_open |= has_opened;
        let mut claims = 0;
        self.of.retain(|key, kept| {
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
            let Some(kept) = self.of.get_mut(key) else {
                return false;
            };
            let is_soon = now.since(kept.planned) < Nanos::SECOND;
            if is_soon && kept.pool.len() > MANY {
                return true;
            }
            kept.planned = now;
            news.extend(kept.pool.plan(now));
            false
        });
        news
    }

    /// What a bucket can be told now; nothing while one of its limits has nothing for it.
    pub(super) fn offer(&self, claim: u64, limits: &[Limit], now: Timestamp) -> Option<Offer> {
        let mut shares = Vec::with_capacity(limits.len());
        let mut parts = Vec::with_capacity(limits.len());
        for limit in limits {
            let kept = self.of.get(&limit.key)?;
            let units = kept.pool.offer(claim, now)?;
            shares.push(units);
            parts.push(Share {
                units,
                window: kept.window,
            });
        }
        let strategy = Strategy::within(&parts);
        Some(Offer { shares, strategy })
    }

    /// Whether an offer is other than what the bucket's claims are on record with.
    pub(super) fn is_news(&self, claim: u64, limits: &[Limit], offer: &Offer) -> bool {
        limits.iter().zip(&offer.shares).any(|(limit, share)| {
            let kept = self.of.get(&limit.key);
            kept.and_then(|kept| kept.pool.given(claim)) != Some(*share)
        })
    }

    /// It was told that.
    pub(super) fn sent(&mut self, claim: u64, limits: &[Limit], offer: &Offer, now: Timestamp) {
        for (limit, share) in limits.iter().zip(&offer.shares) {
            if let Some(kept) = self.of.get_mut(&limit.key) {
                kept.pool.sent(claim, *share, now, &self.spans);
            }
        }
    }
}

/// The most of a limit that is of use to a bucket, given the others that it is under: what they would not let through
/// anyway is better left to others.
fn most_of_use(limit: &Limit, all: &[Limit]) -> u64 {
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

    fn limit(units: u64, window: Nanos) -> Limit {
        Limit {
            key: Arc::from(&units.to_be_bytes()[..]),
            units,
            window,
        }
    }

    #[test]
    fn of_a_wide_limit_no_more_is_of_use_than_a_narrow_one_lets_through() {
        let (narrow, wide) = (limit(5, Nanos::SECOND), limit(6_000, Nanos::MINUTE));
        let both = [narrow, wide];
        assert_eq!(most_of_use(&both[0], &both), 5);
        assert_eq!(most_of_use(&both[1], &both), 300);
        let both = [limit(50, Nanos::HOUR), limit(20, Nanos::SECOND)];
        // All fifty at once are of use, as far as twenty a second let them.
        assert_eq!(most_of_use(&both[1], &both), 20);
        assert_eq!(most_of_use(&both[0], &both), 50);
    }
}
