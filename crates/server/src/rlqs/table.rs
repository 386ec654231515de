//! Who is connected, which buckets each has, and which limits those are under: a bounded table in which shares move.
//!
//! A bucket of a client is one claim on every limit that it is under, and is assigned what keeps within all of its shares.
//! Times come in, assignments go out; nothing waits. Must not know: sockets, messages, how limits are found.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};

use super::bounds::QuotaBounds;
use super::demand::Demand;
use super::limits::{Limit, Under};
use super::message::Action;
use super::pools::Pools;
use super::shares::Spans;
use super::strategy::Strategy;

/// There may be so many claims on limits for each bucket that there may be.
const CLAIMS: usize = 2;

/// A report about one bucket, and what holds for it.
#[derive(Debug)]
pub(super) struct Heard {
    pub(super) id: Arc<[u8]>,
    pub(super) elapsed: Nanos,
    pub(super) requests: u64,
    pub(super) under: Under,
}

/// What was done so far, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QuotaCounts {
    /// Clients that are connected.
    pub streams: u64,
    /// Buckets of all clients, each once for every client that has it.
    pub buckets: u64,
    /// Reports about buckets.
    pub reports: u64,
    /// Assignments that were other than those before, or the first.
    pub changed: u64,
    /// Assignments that were the same as before.
    pub repeated: u64,
    /// Buckets that clients were told to forget.
    pub abandoned: u64,
    /// Reports about buckets for which there was no room, or whose ids could not be used.
    pub refused: u64,
}

/// Everything that is known.
#[derive(Debug)]
pub(super) struct Table {
    bounds: QuotaBounds,
    spans: Spans,
    streams: HashMap<u64, Stream>,
    pools: Pools,
    /// Whose claim is which.
    owners: HashMap<u64, (u64, Arc<[u8]>)>,
    next: u64,
    ticked: Timestamp,
    is_crowded: bool,
    counts: QuotaCounts,
}

#[derive(Debug)]
struct Stream {
    buckets: HashMap<Arc<[u8]>, Bucket>,
    /// Buckets about which there is something to be said.
    due: BTreeSet<Arc<[u8]>>,
    wake: Arc<Notify>,
}

#[derive(Debug)]
struct Bucket {
    claim: u64,
    under: Under,
    demand: Demand,
    /// When it was last used.
    used: Timestamp,
    /// What it was last told.
    told: Option<Strategy>,
    /// Whether it is owed an answer, even if nothing has changed.
    is_asked: bool,
    /// When its client was told to forget it, or will be at once.
    abandoned: Option<Timestamp>,
}

impl Table {
    pub(super) fn new(bounds: QuotaBounds, now: Timestamp) -> Self {
        let spans = bounds.spans();
        let opens = match bounds.is_first {
            true => now,
            false => now.after(spans.held()),
        };
        Self {
            bounds,
            spans,
            streams: HashMap::new(),
            pools: Pools::opening(opens, spans),
            owners: HashMap::new(),
            next: 0,
            ticked: now,
            is_crowded: false,
            counts: QuotaCounts::default(),
        }
    }

    pub(super) const fn bounds(&self) -> &QuotaBounds {
        &self.bounds
    }

    pub(super) fn counts(&self) -> QuotaCounts {
        QuotaCounts {
            streams: self.streams.len() as u64,
            buckets: self.owners.len() as u64,
            ..self.counts
        }
    }

    /// Counts buckets whose ids could not be used.
    pub(super) const fn refuse(&mut self, buckets: u64) {
        self.counts.refused = self.counts.refused.saturating_add(buckets);
    }

    /// Somebody has come. Nothing if there are too many.
    pub(super) fn join(&mut self, wake: Arc<Notify>) -> Option<u64> {
        if self.streams.len() >= self.bounds.streams {
            return None;
        }
        let stream = self.number();
        self.streams.insert(
            stream,
            Stream {
                buckets: HashMap::new(),
                due: BTreeSet::new(),
                wake,
            },
        );
        Some(stream)
    }

    /// Somebody is gone. What it was assigned stays held until that has expired.
    pub(super) fn leave(&mut self, stream: u64, now: Timestamp) {
        let Some(left) = self.streams.remove(&stream) else {
            return;
        };
        for bucket in left.buckets.into_values() {
            self.release(&bucket);
        }
        self.settle(now);
    }

    /// Somebody reports.
    pub(super) fn hear(&mut self, stream: u64, heard: Vec<Heard>, now: Timestamp) {
        for one in heard {
            self.counts.reports = self.counts.reports.saturating_add(1);
            self.hear_one(stream, one, now);
        }
        self.settle(now);
    }

    fn hear_one(&mut self, stream: u64, heard: Heard, now: Timestamp) {
        // Those who are gone hold on for a while; they count too, or coming and going would fill everything.
        let most_claims = self.bounds.buckets.saturating_mul(CLAIMS);
        let is_full =
            self.owners.len() >= self.bounds.buckets || self.pools.claims() >= most_claims;
        let claim = self.next;
        let Some(known) = self.streams.get_mut(&stream) else {
            return;
        };
        let is_full = is_full || known.buckets.len() >= self.bounds.buckets_of_one;
        if let Some(bucket) = known.buckets.get(&heard.id)
            && let Some(abandoned) = bucket.abandoned
        {
            // What was written before its client heard of that says nothing; nor does silence.
            if heard.requests == 0 || now < abandoned.after(self.spans.grace) {
                return;
            }
            known.buckets.remove(&heard.id);
        }
        if !known.buckets.contains_key(&heard.id) {
            if is_full {
                self.is_crowded = true;
                self.refuse(1);
                return;
            }
            self.next = self.next.saturating_add(1);
            self.owners.insert(claim, (stream, Arc::clone(&heard.id)));
            let bucket = Bucket {
                claim,
                under: Under::Blanket(Strategy::DenyAll),
                demand: Demand::default(),
                used: now,
                told: None,
                is_asked: true,
                abandoned: None,
            };
            known.buckets.insert(Arc::clone(&heard.id), bucket);
        }
        let Some(bucket) = known.buckets.get_mut(&heard.id) else {
            return;
        };
        known.due.insert(heard.id);
        bucket.is_asked = true;
        let is_new = bucket.demand.add(heard.requests, heard.elapsed);
        if heard.requests > 0 {
            bucket.used = now;
        }
        let before = std::mem::replace(&mut bucket.under, heard.under);
        for limit in before.limits() {
            let is_gone = bucket.under.limits().iter().all(|one| one.key != limit.key);
            if is_gone {
                self.pools.leave(limit, bucket.claim);
            }
        }
        let demand = is_new.then_some(&bucket.demand);
        self.pools
            .hear(bucket.claim, bucket.under.limits(), demand, now);
    }

    /// Time has passed: what has expired is free, and what is not used is abandoned.
    pub(super) fn tick(&mut self, now: Timestamp) {
        if now.since(self.ticked) < Nanos::SECOND {
            return;
        }
        self.ticked = now;
        self.pools.expire(now);
        self.abandon_idle(now);
        self.settle(now);
    }

    /// Abandons buckets that nobody uses, sooner where there is no room for others.
    fn abandon_idle(&mut self, now: Timestamp) {
        let patience = match std::mem::take(&mut self.is_crowded) {
            true => self.bounds.idle_when_crowded,
            false => self.bounds.idle,
        };
        let mut abandoned = Vec::new();
        for stream in self.streams.values_mut() {
            let grace = self.spans.grace;
            // They are remembered until no report can come any more that was written before.
            stream.buckets.retain(|_, bucket| {
                let at = bucket.abandoned;
                at.is_none_or(|at| bucket.is_asked || now < at.after(grace))
            });
            for (id, bucket) in &mut stream.buckets {
                if bucket.abandoned.is_none() && now.since(bucket.used) >= patience {
                    bucket.abandoned = Some(now);
                    bucket.is_asked = true;
                    abandoned.push((
                        bucket.claim,
                        std::mem::replace(&mut bucket.under, Under::Blanket(Strategy::DenyAll)),
                    ));
                    stream.due.insert(Arc::clone(id));
                    stream.wake.notify_one();
                }
            }
        }
        for (claim, under) in abandoned {
            self.owners.remove(&claim);
            for limit in under.limits() {
                self.pools.leave(limit, claim);
            }
        }
    }

    fn release(&mut self, bucket: &Bucket) {
        self.owners.remove(&bucket.claim);
        for limit in bucket.under.limits() {
            self.pools.leave(limit, bucket.claim);
        }
    }

    /// Looks again at every limit of which something has changed, and wakes those whom that concerns.
    fn settle(&mut self, now: Timestamp) {
        for claim in self.pools.plan(now) {
            let Some((stream, id)) = self.owners.get(&claim) else {
                continue;
            };
            if let Some(stream) = self.streams.get_mut(stream) {
                stream.due.insert(Arc::clone(id));
                stream.wake.notify_one();
            }
        }
    }

    /// What is to be said to somebody now, about at most so many buckets.
    pub(super) fn due(
        &mut self,
        stream: u64,
        now: Timestamp,
        most: usize,
    ) -> Vec<(Arc<[u8]>, Action)> {
        let mut actions = Vec::new();
        let Some(known) = self.streams.get_mut(&stream) else {
            return actions;
        };
        while actions.len() < most
            && let Some(id) = known.due.pop_first()
        {
            let Some(bucket) = known.buckets.get_mut(&id) else {
                continue;
            };
            if bucket.abandoned.is_some() {
                if std::mem::take(&mut bucket.is_asked) {
                    bucket.abandoned = Some(now);
                    self.counts.abandoned = self.counts.abandoned.saturating_add(1);
                    actions.push((id, Action::Abandon));
                }
                continue;
            }
            let Some(strategy) = assign(bucket, &mut self.pools, now) else {
                continue;
            };
            let is_new = bucket.told != Some(strategy);
            (bucket.told, bucket.is_asked) = (Some(strategy), false);
            let count = match is_new {
                true => &mut self.counts.changed,
                false => &mut self.counts.repeated,
            };
            *count = count.saturating_add(1);
            actions.push((id, Action::Assign(strategy)));
        }
        actions
    }

    const fn number(&mut self) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }
}

/// What a bucket is told now, on record as sent; nothing if there is nothing to say to it.
fn assign(bucket: &Bucket, pools: &mut Pools, now: Timestamp) -> Option<Strategy> {
    let limits = match &bucket.under {
        Under::Blanket(strategy) => {
            let is_news = bucket.told != Some(*strategy) || bucket.is_asked;
            return is_news.then_some(*strategy);
        }
        Under::Limits(limits) => limits,
    };
    let offer = pools.offer(bucket.claim, limits, now)?;
    let is_news = bucket.told != Some(offer.strategy) || bucket.is_asked;
    if !is_news && !pools.is_news(bucket.claim, limits, &offer) {
        return None;
    }
    pools.sent(bucket.claim, limits, &offer, now);
    Some(offer.strategy)
}

impl Under {
    fn limits(&self) -> &[Limit] {
        match self {
            Self::Blanket(_) => &[],
            Self::Limits(limits) => limits,
        }
    }
}
