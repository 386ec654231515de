//! Deciding on a fixed window: find the window that is open, then count.

use super::{FixedWindow, WindowState};
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

impl FixedWindow {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed.
    pub fn decide(&self, state: WindowState, now: Timestamp, cost: u64) -> Transition<WindowState> {
        let open = self.open(state, now);
        if cost > self.limit {
            return unspent(state, open, now, Outcome::Never);
        }
        if cost > self.limit.saturating_sub(open.count) {
            let retry_after = Nanos::from_nanos(open.end.saturating_sub(now.as_nanos()));
            return unspent(state, open, now, Outcome::Deny { retry_after });
        }
        if cost == 0 {
            return unspent(state, open, now, Outcome::Allow);
        }
        spent(open, now, cost)
    }

    /// Spends as much of `most` units as there is, down to one; denies only where there is not even that.
    pub fn decide_up_to(
        &self,
        state: WindowState,
        now: Timestamp,
        most: u64,
    ) -> Transition<WindowState> {
        let there = self.status(state, now).remaining;
        self.decide(state, now, most.min(there.max(1)))
    }

    /// Spends `cost` units whether or not they are there, up to the overdraft. The debt ends with its window.
    pub fn charge_always(
        &self,
        state: WindowState,
        now: Timestamp,
        cost: u64,
    ) -> Transition<WindowState> {
        let open = self.open(state, now);
        let charged = cost.min(self.saturation.saturating_sub(open.count));
        if charged == 0 {
            return unspent(state, open, now, Outcome::Allow);
        }
        spent(open, now, charged)
    }

    /// Corrects an earlier charge to what the work turned out to cost. More is charged now; less comes back into
    /// the window it was charged to, and nowhere else.
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
        let open = self.open(state, now);
        let surplus = receipt.cost.saturating_sub(actual);
        if surplus == 0 || open.end != receipt.mark || open.count == 0 {
            return unspent(state, open, now, Outcome::Allow);
        }
        lowered(open, now, surplus)
    }

    /// Gives a charge back: settles it at nothing.
    pub fn refund(
        &self,
        state: WindowState,
        now: Timestamp,
        receipt: &Receipt,
    ) -> Transition<WindowState> {
        self.settle(state, now, receipt, 0)
    }

    /// Gives back `amount` units that nobody can show a receipt for, into the window that is open.
    pub fn credit(
        &self,
        state: WindowState,
        now: Timestamp,
        amount: u64,
    ) -> Transition<WindowState> {
        let open = self.open(state, now);
        if amount == 0 || open.count == 0 {
            return unspent(state, open, now, Outcome::Allow);
        }
        lowered(open, now, amount)
    }

    /// What a client may be told about this state.
    #[must_use]
    pub fn status(&self, state: WindowState, now: Timestamp) -> QuotaStatus {
        let open = self.open(state, now);
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

    /// The window that is open at `now`: the stored one while it lasts, else a new one.
    ///
    /// A stored end further away than that of the window after this one means that the clock went back or that the
    /// window was made shorter. The count is kept and the end moves to that one: no nearer, so that nothing is minted
    /// by passing the same boundary twice; no further, so that nobody is locked out for longer than two windows.
    fn open(&self, state: WindowState, now: Timestamp) -> WindowState {
        let fresh_end = self.window.end(now);
        // A window of which everything was given back is as if it had never been opened.
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

fn spent(open: WindowState, now: Timestamp, cost: u64) -> Transition<WindowState> {
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

fn lowered(open: WindowState, now: Timestamp, surplus: u64) -> Transition<WindowState> {
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

/// Nothing is charged; the state is stored only if the end of a live window had to move.
fn unspent(
    stored: WindowState,
    open: WindowState,
    now: Timestamp,
    outcome: Outcome,
) -> Transition<WindowState> {
    let moved = open.end < stored.end && open.count > 0;
    let receipt = Receipt::empty(now);
    Transition {
        outcome,
        next: moved.then_some(open),
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

    /// Found by a property: a day's limit is spent at midnight, and the clock steps back by a second. Yesterday's end
    /// used to replace today's, so that a second later, at midnight again, the whole day's limit was there again.
    #[test]
    fn a_step_back_over_midnight_does_not_give_the_day_twice() {
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
            assert_eq!(denied.next, None, "the end that was told stays");
            let retry_after = Nanos::from_secs(86_401);
            assert_eq!(denied.outcome, Outcome::Deny { retry_after });
            let again = Timestamp::from_secs(86_401);
            assert!(!quota.decide(state, again, 1).outcome.is_admitted());
        }
    }

    #[test]
    fn a_clock_that_goes_far_back_locks_nobody_out_for_longer_than_two_windows() {
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

    /// A window that was refunded to nothing says that it resets at once; so the next request opens a new one.
    #[test]
    fn a_window_refunded_to_nothing_is_as_if_never_opened() {
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
