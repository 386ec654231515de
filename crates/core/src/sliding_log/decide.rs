//! Decides on a log: counts the entries in the window. If available are too many, it finds the entry whose leaving makes room.

use super::SlidingLog;
use super::log::{Log, LogChange, LogEdit};
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

/// A log as one decision sees it.
struct LogView {
    /// Now, in microseconds.
    now: u64,
    /// How many of the oldest entries no window needs any more.
    drop_count: usize,
    /// How many of the oldest entries have left this window.
    expired: usize,
    /// Blocks in this window.
    used: u64,
    /// Whether entries lie ahead of now.
    is_ahead: bool,
}

impl SlidingLog {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed.
    pub fn decide(&self, log: &Log, now: Timestamp, cost: u64) -> Transition<LogEdit> {
        let blocks = self.blocks(cost);
        let view = self.view(log, now);
        if blocks > self.limit {
            return charge_nothing(&view, now, Outcome::Never);
        }
        if blocks == 0 {
            return charge_nothing(&view, now, Outcome::Allow);
        }
        let excess = view.used.saturating_add(blocks).saturating_sub(self.limit);
        if excess > 0 {
            let retry_after = self.time_until_room(log, &view, now, excess);
            return charge_nothing(&view, now, Outcome::Deny { retry_after });
        }
        charge(&view, now, blocks, cost)
    }

    /// Spends as many of `most` units as are left, at least one block; denies if not even one block is left.
    pub fn decide_up_to(&self, log: &Log, now: Timestamp, most: u64) -> Transition<LogEdit> {
        let available = self.status(log, now).remaining;
        self.decide(log, now, most.min(available.max(self.block.get())))
    }

    /// Spends `cost` units even if they are not left, up to the overdraft.
    pub fn charge_always(&self, log: &Log, now: Timestamp, cost: u64) -> Transition<LogEdit> {
        let view = self.view(log, now);
        let blocks = self
            .blocks(cost)
            .min(self.saturation.saturating_sub(view.used));
        if blocks == 0 {
            return charge_nothing(&view, now, Outcome::Allow);
        }
        charge(
            &view,
            now,
            blocks,
            cost.min(blocks.saturating_mul(self.block.get())),
        )
    }

    /// Corrects an earlier charge to the real cost. A higher cost is charged now. A lower cost is refunded from the entry of the charge,
    /// if it is still available.
    pub fn settle(
        &self,
        log: &Log,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<LogEdit> {
        let (charged_blocks, actual_blocks) = (self.blocks(receipt.cost), self.blocks(actual));
        if actual_blocks > charged_blocks {
            let more = actual_blocks
                .saturating_sub(charged_blocks)
                .saturating_mul(self.block.get());
            return self.charge_always(log, now, more);
        }
        let blocks = charged_blocks.saturating_sub(actual_blocks);
        self.refund_blocks(
            log,
            now,
            blocks,
            LogChange::TakeBackAt {
                at: receipt.mark,
                blocks,
            },
        )
    }

    /// Refunds a charge: settles it at zero.
    pub fn refund(&self, log: &Log, now: Timestamp, receipt: &Receipt) -> Transition<LogEdit> {
        self.settle(log, now, receipt, 0)
    }

    /// Gives back `amount` units without a receipt, from the newest entries.
    pub fn credit(&self, log: &Log, now: Timestamp, amount: u64) -> Transition<LogEdit> {
        let blocks = amount / self.block;
        self.refund_blocks(log, now, blocks, LogChange::TakeNewest(blocks))
    }

    /// The status of this log for a client.
    #[must_use]
    pub fn status(&self, log: &Log, now: Timestamp) -> QuotaStatus {
        let view = self.view(log, now);
        let remaining = self
            .limit
            .saturating_sub(view.used)
            .saturating_mul(self.block.get());
        let reset_after = match log.entries().next_back() {
            Some(newest) if view.used > 0 => self.leaves_after(newest.at, &view, now),
            _ => Nanos::ZERO,
        };
        QuotaStatus {
            limit: self.limit(),
            remaining,
            reset_after,
        }
    }

    fn blocks(&self, cost: u64) -> u64 {
        if self.block.get() == 1 {
            cost
        } else {
            cost.div_ceil(self.block.get())
        }
    }

    fn view(&self, log: &Log, now: Timestamp) -> LogView {
        let now = now.as_nanos() / 1_000;
        let mut view = LogView {
            now,
            drop_count: 0,
            expired: 0,
            used: log.total(),
            is_ahead: log.is_ahead_of(now),
        };
        for entry in log.entries() {
            if entry.at.saturating_add(self.window) > now {
                break;
            }
            view.used = view.used.saturating_sub(entry.blocks);
            view.expired = view.expired.saturating_add(1);
            if entry.at.saturating_add(self.retention) <= now {
                view.drop_count = view.drop_count.saturating_add(1);
            }
        }
        view
    }

    /// Time until entries of at least `excess` blocks have left the window.
    fn time_until_room(&self, log: &Log, view: &LogView, now: Timestamp, excess: u64) -> Nanos {
        let mut left = 0_u64;
        let mut leaves = Nanos::ZERO;
        for entry in log.entries().skip(view.expired) {
            left = left.saturating_add(entry.blocks);
            leaves = self.leaves_after(entry.at, view, now);
            if left >= excess {
                break;
            }
        }
        leaves
    }

    /// Time until an entry of this microsecond leaves. An entry ahead of now counts as charged now.
    fn leaves_after(&self, at: u64, view: &LogView, now: Timestamp) -> Nanos {
        let leaves = Nanos::from_micros(at.min(view.now).saturating_add(self.window));
        leaves.saturating_sub(Nanos::from_nanos(now.as_nanos()))
    }

    fn refund_blocks(
        &self,
        log: &Log,
        now: Timestamp,
        blocks: u64,
        change: LogChange,
    ) -> Transition<LogEdit> {
        let view = self.view(log, now);
        if blocks == 0 || view.used == 0 {
            return charge_nothing(&view, now, Outcome::Allow);
        }
        let edit = LogEdit {
            drop_count: view.drop_count,
            now: view.now,
            change,
        };
        let receipt = Receipt::empty(now);
        Transition {
            outcome: Outcome::Allow,
            next: Some(edit),
            receipt,
        }
    }
}

fn charge(view: &LogView, now: Timestamp, blocks: u64, cost: u64) -> Transition<LogEdit> {
    let edit = LogEdit {
        drop_count: view.drop_count,
        now: view.now,
        change: LogChange::Charge(blocks),
    };
    let receipt = Receipt {
        cost,
        at: now,
        mark: view.now,
    };
    Transition {
        outcome: Outcome::Allow,
        next: Some(edit),
        receipt,
    }
}

/// Charges nothing; edits the log only if entries lie ahead of now.
fn charge_nothing(view: &LogView, now: Timestamp, outcome: Outcome) -> Transition<LogEdit> {
    let edit = LogEdit {
        drop_count: view.drop_count,
        now: view.now,
        change: LogChange::Nothing,
    };
    let receipt = Receipt::empty(now);
    Transition {
        outcome,
        next: view.is_ahead.then_some(edit),
        receipt,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn charge(quota: &SlidingLog, log: &mut Log, now: Timestamp, cost: u64) -> Receipt {
        let transition = quota.decide(log, now, cost);
        assert_eq!(transition.outcome, Outcome::Allow);
        log.apply(transition.next.unwrap());
        transition.receipt
    }

    #[test]
    fn entries_leave_at_exactly_their_instant_plus_the_window() {
        let quota = SlidingLog::builder(1, Nanos::SECOND).build().unwrap();
        let mut log = Log::default();
        charge(&quota, &mut log, Timestamp::from_nanos(5_000), 1);
        let just_before = quota.decide(&log, Timestamp::from_nanos(1_000_004_999), 1);
        assert_eq!(
            just_before.outcome,
            Outcome::Deny {
                retry_after: Nanos::from_nanos(1)
            }
        );
        assert_eq!(just_before.next, None);
        assert_eq!(
            quota
                .decide(&log, Timestamp::from_nanos(1_000_005_000), 1)
                .outcome,
            Outcome::Allow
        );
    }

    #[test]
    fn a_clock_that_goes_back_keeps_the_count_and_locks_no_client_out() {
        let quota = SlidingLog::builder(1, Nanos::SECOND).build().unwrap();
        let mut log = Log::default();
        charge(&quota, &mut log, Timestamp::from_secs(1_000), 1);
        let back = Timestamp::from_secs(10);
        let denied = quota.decide(&log, back, 1);
        assert_eq!(
            denied.outcome,
            Outcome::Deny {
                retry_after: Nanos::SECOND
            }
        );
        log.apply(denied.next.unwrap());
        assert_eq!(
            quota.decide(&log, Timestamp::from_secs(11), 1).outcome,
            Outcome::Allow
        );
    }

    #[test]
    fn entries_ahead_of_a_clock_that_went_back_become_one() {
        let quota = SlidingLog::builder(10, Nanos::SECOND).build().unwrap();
        let mut log = Log::default();
        for (second, cost) in [(10, 1), (20, 2), (30, 3)] {
            let quota = SlidingLog::builder(10, Nanos::HOUR).build().unwrap();
            charge(&quota, &mut log, Timestamp::from_secs(second), cost);
        }
        let back = Timestamp::from_secs(10);
        let receipt = charge(&quota, &mut log, back, 4);
        assert_eq!(log.len(), 1);
        log.apply(quota.refund(&log, back, &receipt).next.unwrap());
        assert_eq!(quota.status(&log, back).remaining, 4, "all four came back");
    }

    #[test]
    fn a_refund_finds_the_entry_that_was_charged() {
        let quota = SlidingLog::builder(5, Nanos::SECOND).build().unwrap();
        let mut log = Log::default();
        let first = charge(&quota, &mut log, Timestamp::from_nanos(1_000), 3);
        charge(&quota, &mut log, Timestamp::from_nanos(2_000), 1);
        let now = Timestamp::from_nanos(3_000);
        log.apply(quota.settle(&log, now, &first, 1).next.unwrap());
        assert_eq!(quota.status(&log, now).remaining, 3);
        log.apply(quota.credit(&log, now, 1).next.unwrap());
        assert_eq!(log.len(), 1, "the newest entry was taken back");
    }

    #[test]
    fn a_shared_log_is_kept_for_the_longest_window() {
        let long = SlidingLog::builder(10, Nanos::MINUTE).build().unwrap();
        let short = SlidingLog::builder(10, Nanos::SECOND)
            .build()
            .unwrap()
            .sharing_state_with(&long);
        let mut log = Log::default();
        charge(&long, &mut log, Timestamp::from_secs(10), 10);
        charge(&short, &mut log, Timestamp::from_secs(20), 1);
        assert_eq!(
            long.status(&log, Timestamp::from_secs(20)).remaining,
            0,
            "no entry was dropped"
        );
    }

    #[test]
    fn one_microsecond_is_one_entry_whatever_it_costs() {
        let quota = SlidingLog::builder(10_000, Nanos::SECOND).build().unwrap();
        let mut log = Log::default();
        charge(&quota, &mut log, Timestamp::from_nanos(1_001), 4_000);
        charge(&quota, &mut log, Timestamp::from_nanos(1_999), 6_000);
        assert_eq!(log.len(), 1);
        assert_eq!(
            quota.status(&log, Timestamp::from_nanos(2_000)).remaining,
            0
        );
    }
}
