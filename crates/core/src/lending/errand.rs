//! What a borrower asks of a lender in one call, and what it is answered. Must not know: how it is sent, who sends it, what is
//! borrowed for.

use super::book::Book;
use crate::outcome::{Outcome, QuotaStatus};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::TokenBucket;

/// The name of one slice, chosen by the node that asks for it. No two slices of one bucket ever have the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LoanId(pub u128);

/// What has become of a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LeaseReport {
    /// Which slice.
    pub id: LoanId,
    /// Units of it that have been spent in all, whether or not they were reported before.
    pub spent: u64,
    /// How long ago the last of them was spent, at least. The way to the lender only adds to it.
    pub ago: Nanos,
    /// Nothing more will be spent of it: the rest goes back.
    pub is_last: bool,
}

/// A wish for a slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Want {
    /// What to call it. Asking again under the same id lends nothing more.
    pub id: LoanId,
    /// With less than this nothing is lent. Nothing is less than one block.
    pub least: u64,
    /// The most units that are of use.
    pub most: u64,
    /// When the lender may write it off, counted from the grant.
    pub life: Nanos,
}

/// One call: reports first, then a decision on the spot, then a new slice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct LeaseRequest<'a> {
    /// What has become of earlier slices.
    pub reports: &'a [LeaseReport],
    /// Units to be spent at once, at the lender and from no slice. Zero asks for nothing. If they are denied, nothing is lent.
    pub spend: u64,
    /// A slice to be lent.
    pub want: Option<Want>,
}

/// What came of an errand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeaseGrant {
    /// What was decided on the spot; [`Outcome::Allow`] if nothing was asked.
    pub spend: Outcome,
    /// Units that were lent, whole blocks. Under an id that is known, what was lent then.
    pub units: u64,
    /// How long they are lent for, counted from when the errand was first sent.
    pub life: Nanos,
    /// If nothing was lent: time until the least would be there, if nobody reports or returns anything meanwhile; zero if it
    /// never will be. If something was: time until there is another block, should that be spent at once; zero if it is there.
    pub retry_after: Nanos,
    /// Where the lender stands afterwards.
    pub status: QuotaStatus,
}

impl Book {
    /// Runs an errand at `now`.
    pub fn run(
        &mut self,
        quota: &TokenBucket,
        now: Timestamp,
        errand: &LeaseRequest<'_>,
    ) -> LeaseGrant {
        self.write_off(quota, now);
        for report in errand.reports {
            self.report(quota, now, report);
        }
        let spend = match errand.spend {
            0 => Outcome::Allow,
            cost => self.decide(quota, now, cost),
        };
        let (mut units, mut retry_after) = (0, Nanos::ZERO);
        let wanted = errand.want.filter(|_| spend.is_admitted());
        if let Some(want) = wanted {
            units = self.lend(quota, now, &want);
            retry_after = match units {
                0 => self.wait_for(quota, now, want.least.max(quota.block())),
                _ => self.next_block(quota, now),
            };
        }
        LeaseGrant {
            spend,
            units,
            life: wanted.map_or(Nanos::ZERO, |want| want.life),
            retry_after,
            status: self.status(quota, now),
        }
    }
}
