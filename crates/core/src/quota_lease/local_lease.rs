//! The node's side of a lease: it spends locally and stops before the lease expires at the broker.

use super::lease_request::{LeaseReport, QuotaLeaseId};
use crate::time::{Nanos, Timestamp};

/// Units of a bucket that one node may spend by itself.
///
/// ```
/// use tollgate_core::quota_lease::{LocalLease, QuotaLeaseId};
/// use tollgate_core::{Nanos, Timestamp};
///
/// let requested_at = Timestamp::from_secs(100);
/// let at = |second| Timestamp::from_secs(second);
/// let mut lease = LocalLease::new(QuotaLeaseId(1), 50, requested_at, Nanos::from_secs(5), Nanos::from_millis(100));
/// assert!(lease.spend(at(101), 20));
/// assert!(!lease.spend(at(101), 31), "there are only 30 left");
/// let reported = lease.reported();
/// assert_eq!(lease.refund(2, reported), 2, "another limit denied the request");
/// let report = lease.report(at(103), false);
/// assert_eq!((report.spent, report.last_spend_age), (18, Nanos::from_millis(1_900)));
/// assert_eq!(lease.refund(1, reported), 0, "reported units stay spent");
/// assert!(!lease.spend(at(105), 1), "the lease may have expired at the broker");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct LocalLease {
    id: QuotaLeaseId,
    amount: u64,
    spent: u64,
    /// The most units that were ever reported, whether or not the report arrived.
    reported: u64,
    last_spend: Timestamp,
    expires_at: Timestamp,
    margin: Nanos,
}

impl LocalLease {
    /// A lease of `amount` units that expires at the broker `duration` after the broker received the request.
    ///
    /// `requested_at` is this node's clock when it *first* sent the request under this id. The broker cannot have received it earlier. If
    /// the node sends a request again, the broker may have granted the first one. `margin` covers how far the two clocks may drift apart
    /// during one lease. One id makes one lease, however many replies arrive.
    #[must_use]
    pub const fn new(
        id: QuotaLeaseId,
        amount: u64,
        requested_at: Timestamp,
        duration: Nanos,
        margin: Nanos,
    ) -> Self {
        Self {
            id,
            amount,
            spent: 0,
            reported: 0,
            last_spend: requested_at,
            expires_at: requested_at.after(duration.saturating_sub(margin)),
            margin,
        }
    }

    /// Spends `cost` units if they are left and the lease is active. The caller must read the clock for this very call.
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

    /// Takes back the spending of `cost` units and returns how many may be spent again. `reported` is what [`reported`](Self::reported)
    /// returned when they were spent. If a report was made since, it takes back nothing: reported units are debt at the broker, which may
    /// have refilled since.
    pub const fn refund(&mut self, cost: u64, reported: u64) -> u64 {
        let unreported = self.spent.saturating_sub(self.reported);
        if reported != self.reported || cost > unreported {
            return 0;
        }
        self.spent = self.spent.saturating_sub(cost);
        cost
    }

    /// Units reported to the broker, whether or not the report arrived.
    #[must_use]
    pub const fn reported(&self) -> u64 {
        self.reported
    }

    /// The id of the lease.
    #[must_use]
    pub const fn id(&self) -> QuotaLeaseId {
        self.id
    }

    /// Units granted.
    #[must_use]
    pub const fn amount(&self) -> u64 {
        self.amount
    }

    /// Units spent.
    #[must_use]
    pub const fn spent(&self) -> u64 {
        self.spent
    }

    /// Units that may still be spent while the lease is active.
    #[must_use]
    pub const fn remaining(&self) -> u64 {
        self.amount.saturating_sub(self.spent)
    }

    /// Whether units of the lease may still be spent.
    #[must_use]
    pub const fn is_active(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.expires_at.as_nanos()
    }

    /// When the lease stops being active on this node.
    #[must_use]
    pub const fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// The report for the broker. After a last report the lease must not be spent from.
    ///
    /// The margin is subtracted from the time since the last spend. A fast clock would make that time too long, and the broker would
    /// count the units as refilled too early.
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
