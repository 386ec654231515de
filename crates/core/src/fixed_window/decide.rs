//! Decides on a fixed window: finds the open window, then counts.

use super::{FixedWindow, WindowState};
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

impl FixedWindow {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed.
    pub fn decide(&self, state: WindowState, now: Timestamp, cost: u64) -> Transition<WindowState> {
        let open = self.open_window(state, now);
        if cost > self.limit {
            return charge_nothing(state, open, now, Outcome::Never);
        }
        if cost > self.limit.saturating_sub(open.count) {
            let retry_after = Nanos::from_nanos(open.end.saturating_sub(now.as_nanos()));
            return charge_nothing(state, open, now, Outcome::Deny { retry_after });
        }
        if cost == 0 {
            return charge_nothing(state, open, now, Outcome::Allow);
        }
        charge(open, now, cost)
    }

    /// Spends as many of `most` units as are left, at least one; denies if not even one is left.
    pub fn decide_up_to(
        &self,
        state: WindowState,
        now: Timestamp,
        most: u64,
    ) -> Transition<WindowState> {
        let available = self.status(state, now).remaining;
        self.decide(state, now, most.min(available.max(1)))
    }

    /// Spends `cost` units even if they are not left, up to the overdraft. The debt ends with its window.
    pub fn charge_always(
        &self,
        state: WindowState,
        now: Timestamp,
        cost: u64,
    ) -> Transition<WindowState> {
        let open = self.open_window(state, now);
        let charged = cost.min(self.saturation.saturating_sub(open.count));
        if charged == 0 {
            return charge_nothing(state, open, now, Outcome::Allow);
        }
        charge(open, now, charged)
    }

    /// Corrects an earlier charge to the real cost. A higher cost is charged now. A lower cost is refunded to the window of the charge
    /// and to no other.
    pub fn settle(
        &self,
        state: WindowState,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<WindowState> {
        if actual > receipt.cost {
            return self.charge_always(state, now, actual.saturating_sub(receipt.cost));
        }
        let open = self.open_window(state, now);
        let surplus = receipt.cost.saturating_sub(actual);
        if surplus == 0 || open.end != receipt.mark || open.count == 0 {
            return charge_nothing(state, open, now, Outcome::Allow);
        }
        reduce_count(open, now, surplus)
    }

    /// Refunds a charge: settles it at zero.
    pub fn refund(
        &self,
        state: WindowState,
        now: Timestamp,
        receipt: &Receipt,
    ) -> Transition<WindowState> {
        self.settle(state, now, receipt, 0)
    }

    /// Gives back `amount` units without a receipt, to the open window.
    pub fn credit(
        &self,
        state: WindowState,
        now: Timestamp,
        amount: u64,
    ) -> Transition<WindowState> {
        let open = self.open_window(state, now);
        if amount == 0 || open.count == 0 {
            return charge_nothing(state, open, now, Outcome::Allow);
        }
        reduce_count(open, now, amount)
    }

    /// The status of this state for a client.
    #[must_use]
    pub fn status(&self, state: WindowState, now: Timestamp) -> QuotaStatus {
        let open = self.open_window(state, now);
        let left = if open.count == 0 {
            0
        } else {
            open.end.saturating_sub(now.as_nanos())
        };
        QuotaStatus {
            limit: self.limit,
            remaining: self.limit.saturating_sub(open.count),
            reset_after: Nanos::from_nanos(left),
        }
    }

    /// The window that is open at `now`: the stored one until it ends, then a new one.
    ///
    /// A stored end beyond the end of the next window means that the clock went back or that the window was made shorter. The count is
    /// kept and the end moves to the end of the next window. A nearer end would admit the limit again when the clock passes the same
    /// boundary twice. A later end would lock clients out for longer than two windows.
    fn open_window(&self, state: WindowState, now: Timestamp) -> WindowState {
        let fresh_end = self.window.end(now);
        // A window whose units were all given back is as if it had never been opened.
        if state.end <= now.as_nanos() || state.count == 0 {
            return WindowState {
                end: fresh_end,
                count: 0,
            };
        }
        let end = if state.end > fresh_end {
            state.end.min(self.window.latest_end(fresh_end))
        } else {
            state.end
        };
        WindowState {
            end,
            count: state.count,
        }
    }
}

fn charge(open: WindowState, now: Timestamp, cost: u64) -> Transition<WindowState> {
    let next = WindowState {
        end: open.end,
        count: open.count.saturating_add(cost),
    };
    let receipt = Receipt {
        cost,
        at: now,
        mark: open.end,
    };
    Transition {
        outcome: Outcome::Allow,
        next: Some(next),
        receipt,
    }
}

fn reduce_count(open: WindowState, now: Timestamp, surplus: u64) -> Transition<WindowState> {
    let next = WindowState {
        end: open.end,
        count: open.count.saturating_sub(surplus),
    };
    let receipt = Receipt::empty(now);
    Transition {
        outcome: Outcome::Allow,
        next: Some(next),
        receipt,
    }
}

/// Charges nothing; stores the state only if the end of an open window had to move.
fn charge_nothing(
    stored: WindowState,
    open: WindowState,
    now: Timestamp,
    outcome: Outcome,
) -> Transition<WindowState> {
    let is_moved = open.end < stored.end && open.count > 0;
    let receipt = Receipt::empty(now);
    Transition {
        outcome,
        next: is_moved.then_some(open),
        receipt,
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Calendar, UtcOffset, Window};
    use super::*;

    const HOUR: Window = Window::Epoch(Nanos::HOUR);

    fn quota(limit: u64, window: Window) -> FixedWindow {
        FixedWindow::builder(limit, window).build().unwrap()
    }

    #[test]
    fn the_reset_instant_survives_a_longer_window() {
        let minute = quota(10, Window::Epoch(Nanos::MINUTE));
        let now = Timestamp::from_secs(30);
        let state = minute.decide(WindowState::default(), now, 1).next.unwrap();
        let hour = quota(10, HOUR);
        let later = Timestamp::from_secs(40);
        assert_eq!(hour.status(state, later).reset_after, Nanos::from_secs(20));
        assert_eq!(hour.status(state, later).remaining, 9);
    }

    #[test]
    fn a_shorter_window_keeps_the_count_and_brings_the_end_nearer() {
        let hour = quota(10, HOUR);
        let now = Timestamp::from_secs(90);
        let state = hour.decide(WindowState::default(), now, 10).next.unwrap();
        let minute = quota(10, Window::Epoch(Nanos::MINUTE));
        let denied = minute.decide(state, now, 1);
        assert_eq!(
            denied.outcome,
            Outcome::Deny {
                retry_after: Nanos::from_secs(90)
            }
        );
        assert_eq!(
            denied.next,
            Some(WindowState {
                end: 180_000_000_000,
                count: 10
            })
        );
    }

    /// Regression, found by a property: a day's limit is spent at midnight, and the clock steps back by a second. Yesterday's end
    /// replaced today's, so that at midnight, a second later, the whole limit was left again.
    #[test]
    fn a_step_back_over_midnight_does_not_admit_the_limit_twice() {
        for window in [
            Window::Epoch(Nanos::DAY),
            Window::Calendar(Calendar::Day, UtcOffset::UTC),
        ] {
            let quota = quota(10, window);
            let midnight = Timestamp::from_secs(86_400);
            let spent = quota.decide(WindowState::default(), midnight, 10);
            let state = spent.next.unwrap();
            let back = Timestamp::from_secs(86_399);
            let denied = quota.decide(state, back, 1);
            assert_eq!(denied.next, None, "the end that clients have seen stays");
            let retry_after = Nanos::from_secs(86_401);
            assert_eq!(denied.outcome, Outcome::Deny { retry_after });
            let again = Timestamp::from_secs(86_401);
            assert!(!quota.decide(state, again, 1).outcome.is_admitted());
        }
    }

    #[test]
    fn a_clock_that_goes_far_back_locks_no_client_out_for_longer_than_two_windows() {
        let quota = quota(10, HOUR);
        let spent = quota.decide(WindowState::default(), Timestamp::from_secs(360_000), 10);
        let back = Timestamp::from_secs(5_400);
        let retry_after = Nanos::from_secs(5_400);
        let denied = quota.decide(spent.next.unwrap(), back, 1);
        assert_eq!(denied.outcome, Outcome::Deny { retry_after });
    }

    #[test]
    fn a_refund_reaches_only_the_window_it_was_charged_to() {
        let quota = quota(10, Window::FirstHit(Nanos::MINUTE));
        let first = quota.decide(WindowState::default(), Timestamp::from_secs(0), 5);
        let state = first.next.unwrap();
        let same = quota.refund(state, Timestamp::from_secs(59), &first.receipt);
        assert_eq!(same.next.unwrap().count, 0);
        let next = quota
            .decide(state, Timestamp::from_secs(60), 4)
            .next
            .unwrap();
        let late = quota.refund(next, Timestamp::from_secs(61), &first.receipt);
        assert_eq!(late.next, None, "the minute it was charged to is over");
    }

    /// A window refunded to zero reports an immediate reset, so the next request opens a new one.
    #[test]
    fn a_window_refunded_to_zero_is_as_if_never_opened() {
        let quota = quota(10, Window::FirstHit(Nanos::MINUTE));
        let spent = quota.decide(WindowState::default(), Timestamp::from_secs(0), 5);
        let now = Timestamp::from_secs(50);
        let empty = quota
            .refund(spent.next.unwrap(), now, &spent.receipt)
            .next
            .unwrap();
        assert_eq!(quota.status(empty, now).reset_after, Nanos::ZERO);
        let again = quota.decide(empty, now, 5).next.unwrap();
        assert_eq!(quota.status(again, now).reset_after, Nanos::MINUTE);
    }

    #[test]
    fn a_limit_lowered_below_the_count_denies_without_underflow() {
        let state = WindowState {
            end: Nanos::HOUR.as_nanos(),
            count: 90,
        };
        let lowered = quota(50, HOUR);
        assert_eq!(lowered.status(state, Timestamp::EPOCH).remaining, 0);
        assert_eq!(
            lowered.decide(state, Timestamp::EPOCH, 1).outcome,
            Outcome::Deny {
                retry_after: Nanos::HOUR
            }
        );
        assert_eq!(
            lowered.decide(state, Timestamp::EPOCH, 0).outcome,
            Outcome::Allow
        );
    }

    #[test]
    fn a_month_ends_with_the_calendar() {
        let quota = quota(1, Window::Calendar(Calendar::Month, UtcOffset::UTC));
        let feb_29_2024 = Timestamp::from_secs(19_782 * 86_400);
        let state = quota
            .decide(WindowState::default(), feb_29_2024, 1)
            .next
            .unwrap();
        let denied = quota.decide(state, feb_29_2024, 1).outcome;
        assert_eq!(
            denied,
            Outcome::Deny {
                retry_after: Nanos::DAY
            }
        );
    }
}
