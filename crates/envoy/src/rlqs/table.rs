//! The bounded table of clients, their buckets, and the limits that apply to them.
//!
//! A client's bucket has one claim on every limit that applies to it, and is assigned a strategy within all of its shares. The
//! table does no IO. Must not know: sockets, messages, how limits are found.

use std::collections::HashMap;
use std::sync::Arc;

use tokio::sync::Notify;
use tollgate_core::{Nanos, Timestamp};
use tollgate_service::metrics::QuotaCounts;

use super::bounds::QuotaBounds;
use super::client::{BucketReport, ForgottenBucket, QuotaBucket, QuotaClient};
use super::limits::AppliedLimits;
use super::message::BucketAction;
use super::pools::Pools;
use super::shares::AssignmentTimes;
use super::strategy::Strategy;

/// The most claims are this many times the most buckets.
const MAX_CLAIMS_PER_BUCKET: usize = 2;

/// All clients, buckets and share pools.
#[derive(Debug)]
pub(super) struct QuotaTable {
    bounds: QuotaBounds,
    spans: AssignmentTimes,
    clients: HashMap<u64, QuotaClient>,
    pools: Pools,
    /// The client and bucket of each claim.
    owners: HashMap<u64, (u64, Arc<[u8]>)>,
    next: u64,
    last_tick: Timestamp,
    is_crowded: bool,
    counts: QuotaCounts,
}

impl QuotaTable {
    pub(super) fn new(bounds: QuotaBounds, now: Timestamp) -> Self {
        let spans = bounds.spans();
        let opens = match bounds.is_first_process {
            true => now,
            false => now.after(spans.hold_time()),
        };
        Self {
            bounds,
            spans,
            clients: HashMap::new(),
            pools: Pools::new(opens, spans),
            owners: HashMap::new(),
            next: 0,
            last_tick: now,
            is_crowded: false,
            counts: QuotaCounts::default(),
        }
    }

    pub(super) const fn bounds(&self) -> &QuotaBounds {
        &self.bounds
    }

    pub(super) fn counts(&self) -> QuotaCounts {
        QuotaCounts {
            streams: self.clients.len() as u64,
            buckets: self.owners.len() as u64,
            ..self.counts
        }
    }

    /// Counts reports that were refused.
    pub(super) const fn refuse(&mut self, buckets: u64) {
        self.counts.refused = self.counts.refused.saturating_add(buckets);
    }

    /// Adds a client. `None` if there are too many.
    pub(super) fn join(&mut self, wake: Arc<Notify>) -> Option<u64> {
        if self.clients.len() >= self.bounds.streams {
            return None;
        }
        let client = self.next_id();
        self.clients.insert(client, QuotaClient::new(wake));
        Some(client)
    }

    /// Removes a client. Its shares stay reserved until they expire.
    pub(super) fn leave(&mut self, client: u64, now: Timestamp) {
        let Some(left) = self.clients.remove(&client) else {
            return;
        };
        for bucket in left.buckets.into_values() {
            self.owners.remove(&bucket.claim);
            self.pools.leave(bucket.claim, bucket.limits.limits());
        }
        self.replan(now);
    }

    /// Whether a client has a bucket with this id.
    pub(super) fn has_bucket(&self, client: u64, id: &[u8]) -> bool {
        let known = self.clients.get(&client);
        known.is_some_and(|known| known.buckets.contains_key(id))
    }

    /// Records the reports of a client.
    pub(super) fn record_reports(
        &mut self,
        client: u64,
        reports: Vec<BucketReport>,
        now: Timestamp,
    ) {
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        for bucket in known.take_confirmed_forgotten(now, self.spans.grace) {
            self.pools
                .confirm_delivery(bucket.claim, &bucket.limits, now);
        }
        for report in reports {
            self.counts.reports = self.counts.reports.saturating_add(1);
            self.record_report(client, report, now);
        }
        self.replan(now);
    }

    fn record_report(&mut self, client: u64, report: BucketReport, now: Timestamp) {
        // Claims of disconnected clients count too, or reconnecting would exceed the bound.
        let most_claims = self.bounds.buckets.saturating_mul(MAX_CLAIMS_PER_BUCKET);
        let is_full =
            self.owners.len() >= self.bounds.buckets || self.pools.claims() >= most_claims;
        let Some(known) = self.clients.get_mut(&client) else {
            return;
        };
        let is_full = is_full || known.buckets.len() >= self.bounds.buckets_per_client;
        let is_known = known.buckets.contains_key(&report.id);
        if !is_known && known.is_stale(&report) {
            return;
        }
        if !is_known && is_full {
            self.is_crowded = true;
            return self.refuse(1);
        }
        known.mark_due(Arc::clone(&report.id));
        let bucket = known.buckets.entry(Arc::clone(&report.id));
        let bucket = bucket.or_insert_with(|| {
            let claim = self.next;
            self.next = claim.saturating_add(1);
            self.owners.insert(claim, (client, report.id));
            QuotaBucket::new(claim, now)
        });
        bucket.needs_reply = true;
        if report.requests > 0 {
            (bucket.last_used, bucket.is_idle) = (now, false);
        }
        let is_new = bucket.demand.record(report.requests, report.elapsed);
        let mut before = std::mem::replace(&mut bucket.limits, report.limits).into_limits();
        let limits = bucket.limits.limits();
        before.retain(|limit| limits.iter().all(|one| one.key != limit.key));
        self.pools.leave(bucket.claim, &before);
        let demand = is_new.then_some(&bucket.demand);
        self.pools.record_report(bucket.claim, limits, demand, now);
    }

    /// Releases expired shares and abandons idle buckets, sooner if there are too many buckets.
    pub(super) fn tick(&mut self, now: Timestamp) {
        if now.since(self.last_tick) < Nanos::SECOND {
            return;
        }
        self.last_tick = now;
        self.pools.expire(now);
        let idle = match std::mem::take(&mut self.is_crowded) {
            true => self.bounds.idle_when_crowded,
            false => self.bounds.idle,
        };
        for client in self.clients.values_mut() {
            client.expire_forgotten(now, self.spans.hold_time());
            client.abandon(now, idle);
        }
        self.replan(now);
    }

    /// Plans every limit that has changed and wakes the clients with a new share.
    fn replan(&mut self, now: Timestamp) {
        for claim in self.pools.plan(now) {
            if let Some((client, id)) = self.owners.get(&claim)
                && let Some(client) = self.clients.get_mut(client)
            {
                client.mark_due(Arc::clone(id));
            }
        }
    }

    /// Takes the due actions of a client, at most `most`. They count as sent.
    pub(super) fn take_due_actions(
        &mut self,
        client: u64,
        now: Timestamp,
        most: usize,
    ) -> Vec<(Arc<[u8]>, BucketAction)> {
        let mut actions = Vec::new();
        let Some(known) = self.clients.get_mut(&client) else {
            return actions;
        };
        while actions.len() < most
            && let Some(id) = known.next_due()
        {
            let is_idle = known.buckets.get(&id).is_some_and(|bucket| bucket.is_idle);
            if is_idle && let Some(idle) = known.buckets.remove(&id) {
                let (claim, limits) = (idle.claim, idle.limits.into_limits());
                self.owners.remove(&claim);
                // Abandoning a bucket assigns it a share of zero.
                self.pools.record_abandoned(claim, &limits, now);
                self.pools.leave(claim, &limits);
                let at = now;
                known.record_forgotten(Arc::clone(&id), ForgottenBucket { at, claim, limits });
                self.counts.abandoned = self.counts.abandoned.saturating_add(1);
                actions.push((id, BucketAction::Abandon));
                continue;
            }
            let Some(bucket) = known.buckets.get_mut(&id) else {
                continue;
            };
            let Some(strategy) = assign(bucket, &mut self.pools, now) else {
                continue;
            };
            let is_new = bucket.last_assigned != Some(strategy);
            (bucket.last_assigned, bucket.needs_reply) = (Some(strategy), false);
            let count = match is_new {
                true => &mut self.counts.changed,
                false => &mut self.counts.repeated,
            };
            *count = count.saturating_add(1);
            actions.push((id, BucketAction::Assign(strategy)));
        }
        actions
    }

    const fn next_id(&mut self) -> u64 {
        let number = self.next;
        self.next = number.saturating_add(1);
        number
    }
}

/// The strategy to send for a bucket, recorded as sent. `None` if nothing is due.
fn assign(bucket: &QuotaBucket, pools: &mut Pools, now: Timestamp) -> Option<Strategy> {
    let limits = match &bucket.limits {
        AppliedLimits::Fixed(strategy) => {
            let is_news = bucket.last_assigned != Some(*strategy) || bucket.needs_reply;
            return is_news.then_some(*strategy);
        }
        AppliedLimits::Limits(limits) => limits,
    };
    let offer = pools.offer(bucket.claim, limits, now)?;
    let is_news = bucket.last_assigned != Some(offer.strategy) || bucket.needs_reply;
    if !is_news && !pools.has_changed(bucket.claim, limits, &offer) {
        return None;
    }
    pools.record_sent(bucket.claim, limits, &offer, now);
    Some(offer.strategy)
}
