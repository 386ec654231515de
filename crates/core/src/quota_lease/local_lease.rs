//! The borrower's side: spend locally, stop before the lender stops waiting.

use super::lease_request::{LeaseReport, QuotaLeaseId};
use crate::time::{Nanos, Timestamp};

/// A part of a bucket that one node may spend by itself.
///
/// ```
/// use tollgate_core::lending::{QuotaLeaseId, LocalLease};
/// use tollgate_core::{Nanos, Timestamp};
///
/// let asked_at = Timestamp::from_secs(100);
/// let at = |second| Timestamp::from_secs(second);
/// let mut slice = LocalLease::new(QuotaLeaseId(1), 50, asked_at, Nanos::from_secs(5), Nanos::from_millis(100));
/// assert!(slice.spend(at(101), 20));
/// assert!(!slice.spend(at(101), 31), "there are only 30 left");
/// let told = slice.told();
/// assert_eq!(slice.unspend(2, told), 2, "somebody else refused the request");
/// let report = slice.report(at(103), false);
/// assert_eq!((report.spent, report.ago), (18, Nanos::from_millis(1_900)));
/// assert_eq!(slice.unspend(1, told), 0, "what was told to the lender is spent");
/// assert!(!slice.spend(at(105), 1), "the lender may have written it off");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalLease {
    id: QuotaLeaseId,
    amount: u64,
    spent: u64,
    /// The most that was ever told, whether or not it arrived.
    reported: u64,
    last_spend: Timestamp,
    expires_at: Timestamp,
    margin: Nanos,
}

impl LocalLease {
    /// A slice of `amount` units that the lender will write off `life` after it received the request.
    ///
    /// `asked_at` is this node's clock when it *first* sent the request under this id, which the lender cannot have
    /// received earlier: if a request is sent again, the lender may have granted the first. `margin` covers how far the
    /// two clocks may drift apart during one life. One id makes one slice, however many answers arrive.
    #[must_use]
    pub const fn new(
        id: QuotaLeaseId,
        amount: u64,
        asked_at: Timestamp,
        life: Nanos,
        margin: Nanos,
    ) -> Self {
        Self {
            id,
            amount,
            spent: 0,
            reported: 0,
            last_spend: asked_at,
            expires_at: asked_at.after(life.saturating_sub(margin)),
            margin,
        }
    }

    /// Spends `cost` units if they are there and the slice is alive. The clock must be read for this very call.
    pub const fn spend(&mut self, now: Timestamp, cost: u64) -> bool {
        if !self.is_active(now) || cost > self.remaining() {
            return false;
        }
        self.spent = self.spent.saturating_add(cost);
        if now.as_nanos() > self.last_spend.as_nanos() {
            self.last_spend = now;
        }
        true
    }

    /// Takes back that `cost` units were spent, if the lender was told nothing since: `told` is what [`told`](Self::told) said
    /// when they were. What the lender has heard of is its own debt, which may have been refilled since. Answers how many
    /// may be spent again.
    pub const fn refund(&mut self, cost: u64, told: u64) -> u64 {
        let untold = self.spent.saturating_sub(self.reported);
        if told != self.reported || cost > untold {
            return 0;
        }
        self.spent = self.spent.saturating_sub(cost);
        cost
    }

    /// Units that the lender was told of, whether or not it has heard.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// Which slice it is.
    #[must_use]
    pub const fn id(&self) -> QuotaLeaseId {
        self.id
    }

    /// Units that were lent.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Units that have been spent.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// Units that may still be spent, if the slice is alive.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.amount.saturating_sub(self.spent)
    }

    /// Whether the slice may still be spent from.
    #[must_use]
    pub const fn is_active(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.expires_at.as_nanos()
    }

    /// When it dies.
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// What to tell the lender. After a last report the slice must not be spent from.
    ///
    /// The margin is taken off the time that has passed since, for a clock that runs fast would make it too long, and the
    /// lender would count what was spent as refilled before it is.
    pub const fn report(&mut self, now: Timestamp, is_last: bool) -> LeaseReport {
        if self.spent > self.reported {
            self.reported = self.spent;
        }
        LeaseReport {
            id: self.id,
            spent: self.spent,
            last_spend_age: now.since(self.last_spend).saturating_sub(self.margin),
            is_last,
        }
    }
}
