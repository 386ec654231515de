//! A lease request and the grant that answers it.
//!
//! Must not know: how a request is sent, who sends it, what the units are for.

use super::leased_bucket::LeasedBucket;
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The id of one lease, chosen by the node that requests it. No two leases of one bucket have the same id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QuotaLeaseId(pub u128);

/// What a node has spent from a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseReport {
    /// The lease.
    pub id: QuotaLeaseId,
    /// Total units spent from it, including those reported before.
    pub spent: u64,
    /// The least time since the last of them was spent. The delay of the message only adds to it.
    pub last_spend_age: Nanos,
    /// Whether nothing more will be spent from it, so that its unspent units go back.
    pub is_last: bool,
}

/// The lease that a node requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseSpec {
    /// Its id. A repeated request under the same id grants nothing more.
    pub id: QuotaLeaseId,
    /// The broker grants nothing if it has fewer units than this, or less than one block.
    pub min_units: u64,
    /// The most units that the node can use.
    pub max_units: u64,
    /// Time from the grant to the expiry at the broker.
    pub duration: Nanos,
}

/// One call to a broker, which applies the reports, then decides on the direct cost, then grants the lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeaseRequest<'a> {
    /// Reports of earlier leases.
    pub reports: &'a [LeaseReport],
    /// Units to spend from the bucket itself and from no lease. Zero spends nothing. If they are denied, no lease is granted.
    pub direct_cost: u64,
    /// The lease to grant, if any.
    pub lease: Option<LeaseSpec>,
}

/// The reply to a [`LeaseRequest`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// The decision on the direct cost; [`Outcome::Allow`] if that is zero.
    pub direct_outcome: Outcome,
    /// Units granted, in whole blocks. For a known id, the units of the first grant.
    pub units: u64,
    /// How long the lease lasts, counted from when the request was first sent.
    pub duration: Nanos,
    /// Time after which another request makes sense. If nothing was granted: until `min_units` are left, provided that no node reports or
    /// returns units meanwhile; zero if that never happens. If units were granted: until another block is left, provided that they are
    /// spent at once; zero if it is left now.
    pub retry_after: Nanos,
    /// The status of the bucket after the call.
    pub status: QuotaStatus,
}

impl LeasedBucket {
    /// Handles a request at `now`.
    pub fn handle(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        request: &LeaseRequest<'_>,
    ) -> LeaseGrant {
        self.charge_expired(quota, now);
        for report in request.reports {
            self.apply_report(quota, now, report);
        }
        let direct_outcome = match request.direct_cost {
            0 => Outcome::Allow,
            cost => self.decide(quota, now, cost),
        };
        let (mut units, mut retry_after) = (0, Nanos::ZERO);
        let lease = request.lease.filter(|_| direct_outcome.is_admitted());
        if let Some(spec) = lease {
            units = self.grant(quota, now, &spec);
            retry_after = match units {
                0 => self.time_until_fits(quota, now, spec.min_units.max(quota.block())),
                _ => self.time_until_next_block(quota, now),
            };
        }
        LeaseGrant {
            direct_outcome,
            units,
            duration: lease.map_or(Nanos::ZERO, |spec| spec.duration),
            retry_after,
            status: self.status(quota, now),
        }
    }
}
