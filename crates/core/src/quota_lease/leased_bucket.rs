//! The broker's side: one bucket, its outstanding leases, and decisions on what is left.

use alloc::vec::Vec;

use super::lease_request::{LeaseReport, LeaseSpec, QuotaLeaseId};
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::{Tat, TokenBucket};

/// The most outstanding leases of one bucket.
pub const MAX_QUOTA_LEASES: usize = 1_024;

/// One outstanding lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QuotaLease {
    /// Its id.
    pub id: QuotaLeaseId,
    /// Blocks granted.
    pub blocks: u64,
    /// Blocks reported as spent in full. A partly spent block stays outstanding, because its other units may be spent later.
    pub spent: u64,
    /// When it was granted.
    pub granted_at: Timestamp,
    /// When it expires and counts as spent.
    pub expires: Timestamp,
}

impl QuotaLease {
    /// Blocks that may still be spent.
    const fn outstanding_blocks(&self) -> u64 {
        self.blocks.saturating_sub(self.spent)
    }
}

/// A token bucket of which parts are leased. The default is a full bucket without leases.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct LeasedBucket {
    tat: Tat,
    /// Sorted by expiry, so that expired leases are a prefix.
    leases: Vec<QuotaLease>,
}

impl LeasedBucket {
    /// Decides on spending `cost` units from the bucket itself, not from a lease.
    pub fn decide(&mut self, quota: &TokenBucket, now: Timestamp, cost: u64) -> Outcome {
        self.charge_expired(quota, now);
        if quota.blocks(cost) > quota.burst_blocks() {
            return Outcome::Never;
        }
        let transition = quota
            .without_blocks(self.outstanding_blocks())
            .decide(self.tat, now, cost);
        self.tat = transition.next.unwrap_or(self.tat);
        match transition.outcome {
            Outcome::Deny { .. } | Outcome::Never => Outcome::Deny {
                retry_after: self.time_until_fits(quota, now, cost),
            },
            admitted => admitted,
        }
    }

    /// Grants a lease of the units that are left, at most `max_units`, and returns how many. A repeated request under the same id returns
    /// the units of the first grant, at most `max_units`, and leases nothing more. It grants nothing if fewer than `min_units` are left
    /// or if [`MAX_QUOTA_LEASES`] are outstanding.
    pub fn grant(&mut self, quota: &TokenBucket, now: Timestamp, spec: &LeaseSpec) -> u64 {
        self.charge_expired(quota, now);
        let most = spec.max_units / quota.block_size();
        if let Some(lease) = self.leases.iter().find(|lease| lease.id == spec.id) {
            let blocks = lease.blocks.min(most);
            return blocks.saturating_mul(quota.block());
        }
        let left = quota.without_blocks(self.outstanding_blocks());
        let available = left.status(self.tat, now).remaining / quota.block_size();
        let blocks = available.min(most);
        let is_enough = blocks >= quota.blocks(spec.min_units) && blocks > 0;
        if !is_enough || self.leases.len() >= MAX_QUOTA_LEASES {
            return 0;
        }
        let lease = QuotaLease {
            id: spec.id,
            blocks,
            spent: 0,
            granted_at: now,
            expires: now.after(spec.duration),
        };
        let index = self
            .leases
            .partition_point(|other| other.expires <= lease.expires);
        self.leases.insert(index, lease);
        blocks.saturating_mul(quota.block())
    }

    /// Applies a report. Returns whether the lease is known. A report of an unknown or expired lease changes nothing, because its units
    /// are already charged. A report without new units changes nothing either.
    pub fn apply_report(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        report: &LeaseReport,
    ) -> bool {
        self.charge_expired(quota, now);
        let Some(lease) = self.leases.iter_mut().find(|lease| lease.id == report.id) else {
            return false;
        };
        let blocks = match report.is_last {
            true => quota.blocks(report.spent),
            false => report.spent / quota.block_size(),
        };
        let blocks = blocks.min(lease.blocks).max(lease.spent);
        let more = blocks.saturating_sub(lease.spent);
        lease.spent = blocks;
        if report.is_last {
            lease.blocks = blocks;
        }
        if more > 0 {
            // Nothing can have been spent before the grant.
            let at = now
                .as_nanos()
                .saturating_sub(report.last_spend_age.as_nanos());
            let at = Timestamp::from_nanos(at).max(lease.granted_at);
            self.tat = charge_at(self.tat, at, quota.price(more)).min(max_tat(quota, now));
        }
        self.leases.retain(|lease| lease.outstanding_blocks() > 0);
        true
    }

    /// The status for a client that the bucket itself decides on.
    #[must_use]
    pub fn status(&self, quota: &TokenBucket, now: Timestamp) -> QuotaStatus {
        let mut current = self.clone();
        current.charge_expired(quota, now);
        status_from_parts(
            quota,
            current.tat,
            current.outstanding_blocks(),
            current.reset_at(quota),
            now,
        )
    }

    /// The outstanding leases, those that expire soonest first.
    #[must_use]
    pub fn leases(&self) -> &[QuotaLease] {
        &self.leases
    }

    /// The instant at which this bucket equals a fresh one if nothing else happens. Its state must be kept until then.
    #[must_use]
    pub fn reset_at(&self, quota: &TokenBucket) -> u64 {
        let expire = |tat, lease: &QuotaLease| {
            charge_at(tat, lease.expires, quota.price(lease.outstanding_blocks()))
        };
        self.leases.iter().fold(self.tat, expire)
    }

    /// Outstanding blocks of all leases.
    fn outstanding_blocks(&self) -> u64 {
        self.leases.iter().fold(0, |sum, lease| {
            sum.saturating_add(lease.outstanding_blocks())
        })
    }

    /// Charges expired leases as spent at their expiry, in that order.
    ///
    /// If the clock went back, a state too far ahead is lowered to the ceiling. A lease granted ahead of `now` then gets its whole
    /// duration again from `now`: its node counts by its own clock and has no more than that left.
    pub(super) fn charge_expired(&mut self, quota: &TokenBucket, now: Timestamp) {
        let mut is_moved = false;
        for lease in self
            .leases
            .iter_mut()
            .filter(|lease| lease.granted_at > now)
        {
            lease.expires = now.after(lease.expires.since(lease.granted_at));
            lease.granted_at = now;
            is_moved = true;
        }
        if is_moved {
            self.leases.sort_by_key(|lease| lease.expires);
        }
        let expired = self.leases.partition_point(|lease| lease.expires <= now);
        for lease in self.leases.drain(..expired) {
            self.tat = charge_at(
                self.tat,
                lease.expires,
                quota.price(lease.outstanding_blocks()),
            );
        }
        self.tat = self.tat.min(max_tat(quota, now));
    }

    /// Time until one more block could be granted, if the units granted just now are spent at once. Spending moves them from the
    /// outstanding blocks to the debt, so the room stays the same.
    pub(super) fn time_until_next_block(&self, quota: &TokenBucket, now: Timestamp) -> Nanos {
        let capacity = quota
            .without_blocks(self.outstanding_blocks())
            .refill_time()
            .as_nanos();
        let room = capacity.saturating_sub(quota.debt(self.tat, now));
        quota.interval().saturating_sub(Nanos::from_nanos(room))
    }

    /// Time until the cost fits if nothing is spent, reported or returned meanwhile. The bucket drains between two expiries, and at each
    /// expiry a lease becomes debt. Zero if the cost never fits.
    pub fn time_until_fits(&self, quota: &TokenBucket, now: Timestamp, cost: u64) -> Nanos {
        let blocks = quota.blocks(cost);
        let (mut tat, mut outstanding, mut from) =
            (self.tat, self.outstanding_blocks(), now.as_nanos());
        let mut expiries = self.leases.iter();
        loop {
            let next = expiries.next();
            let room = quota.burst_blocks().saturating_sub(outstanding);
            if let Some(spare) = room.checked_sub(blocks) {
                let fits_at = tat.saturating_sub(quota.price(spare)).max(from);
                if next.is_none_or(|lease| fits_at < lease.expires.as_nanos()) {
                    return Nanos::from_nanos(fits_at.saturating_sub(now.as_nanos()));
                }
            }
            let Some(lease) = next else {
                return Nanos::ZERO;
            };
            tat = charge_at(tat, lease.expires, quota.price(lease.outstanding_blocks()));
            outstanding = outstanding.saturating_sub(lease.outstanding_blocks());
            from = lease.expires.as_nanos();
        }
    }
}

/// The status of a leased bucket from its parts: the bucket state, the outstanding blocks and the instant of its reset. For brokers that
/// store a leased bucket in another form.
#[must_use]
pub fn status_from_parts(
    quota: &TokenBucket,
    tat: Tat,
    outstanding_blocks: u64,
    reset_at: u64,
    now: Timestamp,
) -> QuotaStatus {
    QuotaStatus {
        limit: quota.limit(),
        remaining: quota
            .without_blocks(outstanding_blocks)
            .status(tat, now)
            .remaining,
        // Outstanding leases count as used, so the reset comes after their expiry.
        reset_after: Nanos::from_nanos(reset_at.saturating_sub(now.as_nanos())),
    }
}

/// The furthest that the state of a bucket may lie ahead of `now`.
fn max_tat(quota: &TokenBucket, now: Timestamp) -> Tat {
    now.as_nanos().saturating_add(quota.ceiling().as_nanos())
}

/// The bucket state after `price` was charged at `at`.
fn charge_at(tat: Tat, at: Timestamp, price: u64) -> Tat {
    tat.max(at.as_nanos()).saturating_add(price)
}

#[cfg(test)]
mod tests;
