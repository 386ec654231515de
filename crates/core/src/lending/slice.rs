//! The borrower's side: spend locally, stop before the lender stops waiting.

use crate::time::{Nanos, Timestamp};

/// A part of a bucket that one node may spend by itself.
///
/// ```
/// use tollgate_core::lending::Slice;
/// use tollgate_core::{Nanos, Timestamp};
///
/// let asked_at = Timestamp::from_secs(100);
/// let mut slice = Slice::new(50, asked_at, Nanos::from_secs(2), Nanos::from_millis(100));
/// assert!(slice.spend(Timestamp::from_secs(101), 20));
/// assert!(!slice.spend(Timestamp::from_secs(101), 31), "there are only 30 left");
/// assert!(!slice.spend(Timestamp::from_secs(102), 1), "the lender may have written it off");
/// assert_eq!(slice.take_report(), Some((20, Timestamp::from_secs(101))));
/// assert_eq!(slice.unconfirmed(), 20, "a return now must keep these");
/// slice.confirm(20);
/// assert_eq!(slice.unconfirmed(), 0);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slice {
    left: u64,
    unreported: u64,
    unconfirmed: u64,
    last_spend: Timestamp,
    dies_at: Timestamp,
}

impl Slice {
    /// A slice of `amount` units that the lender will write off `life` after it received the request.
    ///
    /// `asked_at` is this node's clock when it *first* sent the request under this id, which the lender cannot have
    /// received earlier: if a request is sent again, the lender may have granted the first. `margin` covers how far the
    /// two clocks may drift apart during one life. One id makes one slice, however many answers arrive.
    #[must_use]
    pub const fn new(amount: u64, asked_at: Timestamp, life: Nanos, margin: Nanos) -> Self {
        Self {
            left: amount,
            unreported: 0,
            unconfirmed: 0,
            last_spend: asked_at,
            dies_at: asked_at.after(life.saturating_sub(margin)),
        }
    }

    /// Spends `cost` units if they are there and the slice is alive. The clock must be read for this very call.
    pub const fn spend(&mut self, now: Timestamp, cost: u64) -> bool {
        if !self.is_alive(now) || cost > self.left {
            return false;
        }
        self.left = self.left.saturating_sub(cost);
        self.unreported = self.unreported.saturating_add(cost);
        self.unconfirmed = self.unconfirmed.saturating_add(cost);
        if now.as_nanos() > self.last_spend.as_nanos() {
            self.last_spend = now;
        }
        true
    }

    /// Units that may still be spent, if the slice is alive.
    #[must_use]
    pub const fn left(&self) -> u64 {
        self.left
    }

    /// Whether the slice may still be spent from.
    #[must_use]
    pub const fn is_alive(&self, now: Timestamp) -> bool {
        now.as_nanos() < self.dies_at.as_nanos()
    }

    /// What to report: units spent since the last report, and an instant by which all of them were. A report that
    /// is lost must not be repeated; the lender then counts these units as spent when the slice expires.
    pub const fn take_report(&mut self) -> Option<(u64, Timestamp)> {
        if self.unreported == 0 {
            return None;
        }
        let report = (self.unreported, self.last_spend);
        self.unreported = 0;
        Some(report)
    }

    /// The lender has answered a report of so many units.
    pub const fn confirm(&mut self, units: u64) {
        self.unconfirmed = self.unconfirmed.saturating_sub(units);
    }

    /// Units spent that the lender is not known to have heard of: what a return must not take back.
    #[must_use]
    pub const fn unconfirmed(&self) -> u64 {
        self.unconfirmed
    }
}
