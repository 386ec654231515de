//! What a borrower asks of a lender in one call, and what it is answered. Must not know: how it is sent, who sends it, what is
//! borrowed for.

use super::leased_bucket::LeasedBucket;
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The name of one slice, chosen by the node that asks for it. No two slices of one bucket ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct QuotaLeaseId(pub u128);

/// What has become of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseReport {
    /// Which slice.
    pub id: QuotaLeaseId,
    /// Units of it that have been spent in all, whether or not they were reported before.
    pub spent: u64,
    /// How long ago the last of them was spent, at least. The way to the lender only adds to it.
    pub last_spend_age: Nanos,
    /// Nothing more will be spent of it: the rest goes back.
    pub is_last: bool,
}

/// A wish for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseSpec {
    /// What to call it. Asking again under the same id lends nothing more.
    pub id: QuotaLeaseId,
    /// With less than this nothing is lent. Nothing is less than one block.
    pub min_units: u64,
    /// The most units that are of use.
    pub max_units: u64,
    /// When the lender may write it off, counted from the grant.
    pub duration: Nanos,
}

/// One call: reports first, then a decision on the spot, then a new slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeaseRequest<'a> {
    /// What has become of earlier slices.
    pub reports: &'a [LeaseReport],
    /// Units to be spent at once, at the lender and from no slice. Zero asks for nothing. If they are denied, nothing is lent.
    pub direct_cost: u64,
    /// A slice to be lent.
    pub lease: Option<LeaseSpec>,
}

/// What came of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// What was decided on the spot; [`Outcome::Allow`] if nothing was asked.
    pub direct_outcome: Outcome,
    /// Units that were lent, whole blocks. Under an id that is known, what was lent then.
    pub units: u64,
    /// How long they are lent for, counted from when the errand was first sent.
    pub duration: Nanos,
    /// If nothing was lent: time until the least would be there, if nobody reports or returns anything meanwhile; zero if it
    /// never will be. If something was: time until there is another block, should that be spent at once; zero if it is there.
    pub retry_after: Nanos,
    /// Where the lender stands afterwards.
    pub status: QuotaStatus,
}

impl LeasedBucket {
    /// Runs an errand at `now`.
    pub fn handle(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        errand: &LeaseRequest<'_>,
    ) -> LeaseGrant {
        self.write_off(quota, now);
        for report in errand.reports {
            self.apply_report(quota, now, report);
        }
        let spend = match errand.direct_cost {
            0 => Outcome::Allow,
            cost => self.decide(quota, now, cost),
        };
        let (mut units, mut retry_after) = (0, Nanos::ZERO);
        let wanted = errand.lease.filter(|_| spend.is_admitted());
        if let Some(want) = wanted {
            units = self.grant(quota, now, &want);
            retry_after = match units {
                0 => self.time_until_fits(quota, now, want.min_units.max(quota.block())),
                _ => self.next_block(quota, now),
            };
        }
        LeaseGrant {
            direct_outcome: spend,
            units,
            duration: wanted.map_or(Nanos::ZERO, |want| want.duration),
            retry_after,
            status: self.status(quota, now),
        }
    }
}
