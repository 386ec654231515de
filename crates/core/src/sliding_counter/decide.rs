//! Decides on two counters. With e ticks of a window of W elapsed, a cost n is admitted while `prev · (W − e) + (cur + n) · W ≤ L · W`.
//! Solving the same inequality for e gives the wait.

use super::{CounterState, SlidingCounter};
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};

impl SlidingCounter {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed.
    pub fn decide(
        &self,
        state: CounterState,
        now: Timestamp,
        cost: u64,
    ) -> Transition<CounterState> {
        let rolled = self.roll(state, now);
        let Some(cost32) = u32::try_from(cost).ok().filter(|cost| *cost <= self.limit) else {
            return self.charge_nothing(state, now, Outcome::Never);
        };
        if cost32 == 0 {
            return self.charge_nothing(state, now, Outcome::Allow);
        }
        if self.fits(rolled, now, cost32) {
            return charge(rolled, now, cost32);
        }
        let retry_after = self.time_until_fits(rolled, now, cost32);
        self.charge_nothing(state, now, Outcome::Deny { retry_after })
    }

    /// Spends as many of `most` units as are left, at least one; denies if not even one is left.
    pub fn decide_up_to(
        &self,
        state: CounterState,
        now: Timestamp,
        most: u64,
    ) -> Transition<CounterState> {
        let available = self.status(state, now).remaining;
        self.decide(state, now, most.min(available.max(1)))
    }

    /// Spends `cost` units even if they are not left, up to the overdraft.
    pub fn charge_always(
        &self,
        state: CounterState,
        now: Timestamp,
        cost: u64,
    ) -> Transition<CounterState> {
        let rolled = self.roll(state, now);
        let room = u64::from(self.saturation).saturating_sub(self.estimate(rolled, now));
        match u32::try_from(cost.min(room)) {
            Ok(charged) if charged > 0 => charge(rolled, now, charged),
            _ => self.charge_nothing(state, now, Outcome::Allow),
        }
    }

    /// Corrects an earlier charge to the real cost. A higher cost is charged now. A lower cost is refunded to the window of the charge
    /// and to no other, at the weight that this window has now.
    pub fn settle(
        &self,
        state: CounterState,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<CounterState> {
        if actual > receipt.cost {
            return self.charge_always(state, now, actual.saturating_sub(receipt.cost));
        }
        let rolled = self.roll(state, now);
        let surplus = saturate(receipt.cost.saturating_sub(actual));
        let mut next = rolled;
        if receipt.mark == rolled.start {
            next.current = rolled.current.saturating_sub(surplus);
        } else if receipt.mark.saturating_add(self.length()) == rolled.start {
            next.previous = rolled.previous.saturating_sub(surplus);
        }
        self.reduce_count(state, now, rolled, next)
    }

    /// Refunds a charge: settles it at zero.
    pub fn refund(
        &self,
        state: CounterState,
        now: Timestamp,
        receipt: &Receipt,
    ) -> Transition<CounterState> {
        self.settle(state, now, receipt, 0)
    }

    /// Gives back `amount` units without a receipt: from the current window, then from the previous one.
    pub fn credit(
        &self,
        state: CounterState,
        now: Timestamp,
        amount: u64,
    ) -> Transition<CounterState> {
        let rolled = self.roll(state, now);
        let amount = saturate(amount);
        let from_current = amount.min(rolled.current);
        let next = CounterState {
            start: rolled.start,
            previous: rolled
                .previous
                .saturating_sub(amount.saturating_sub(from_current)),
            current: rolled.current.saturating_sub(from_current),
        };
        self.reduce_count(state, now, rolled, next)
    }

    /// The status of this state for a client.
    #[must_use]
    pub fn status(&self, state: CounterState, now: Timestamp) -> QuotaStatus {
        let rolled = self.roll(state, now);
        let windows = match (rolled.current, rolled.previous) {
            (0, 0) => 0,
            (0, _) => 1,
            _ => 2,
        };
        let empty = self
            .length()
            .saturating_mul(windows)
            .saturating_add(rolled.start);
        let reset_after = if windows == 0 {
            0
        } else {
            empty.saturating_sub(now.as_nanos())
        };
        QuotaStatus {
            limit: u64::from(self.limit),
            remaining: u64::from(self.limit).saturating_sub(self.estimate(rolled, now)),
            reset_after: Nanos::from_nanos(reset_after),
        }
    }

    /// Converts a state when this quota replaces `old`. A window of another length cannot weight the old counters, so their estimate at
    /// `now`, rounded up, becomes the current count.
    #[must_use]
    pub fn convert_state(&self, old: &Self, state: CounterState, now: Timestamp) -> CounterState {
        let rolled = old.roll(state, now);
        if self.length() == old.length() {
            return rolled;
        }
        CounterState {
            start: self.window_start(now),
            previous: 0,
            current: saturate(old.estimate(rolled, now)),
        }
    }

    /// The state at `now`: elapsed windows moved along, counts within the ceiling.
    ///
    /// A start that lies ahead means that the clock went back. Then the counts are kept and the window starts anew at `now`, so that the
    /// previous window has its full weight. If the start moved to a multiple of the window instead, a step back over the edge of a window
    /// would find the previous window almost faded and admit its count again.
    fn roll(&self, state: CounterState, now: Timestamp) -> CounterState {
        let previous = state.previous.min(self.ceiling);
        let current = state.current.min(self.ceiling);
        let Some(elapsed) = now.as_nanos().checked_sub(state.start) else {
            return CounterState {
                start: now.as_nanos(),
                previous,
                current,
            };
        };
        let length = self.length();
        if elapsed < length {
            CounterState {
                start: state.start,
                previous,
                current,
            }
        } else if elapsed.saturating_sub(length) < length {
            let start = state.start.saturating_add(length);
            CounterState {
                start,
                previous: current,
                current: 0,
            }
        } else {
            CounterState {
                start: self.window_start(now),
                previous: 0,
                current: 0,
            }
        }
    }

    fn window_start(&self, now: Timestamp) -> u64 {
        let begun = now.as_nanos().checked_rem(self.length()).unwrap_or(0);
        now.as_nanos().saturating_sub(begun)
    }

    /// The remaining ticks of the current window.
    fn ticks_left(&self, rolled: CounterState, now: Timestamp) -> u64 {
        let gone = now.as_nanos().saturating_sub(rolled.start) / self.tick;
        self.window.get().saturating_sub(gone)
    }

    /// `prev · (W − e) ≤ (L − cur − n) · W`, each side below 2^52.
    fn fits(&self, rolled: CounterState, now: Timestamp, cost: u32) -> bool {
        let Some(room) = self
            .limit
            .checked_sub(rolled.current)
            .and_then(|room| room.checked_sub(cost))
        else {
            return false;
        };
        let weighted = product(rolled.previous, self.ticks_left(rolled, now));
        weighted <= product(room, self.window.get())
    }

    /// The estimated units spent in the last window length, rounded up.
    fn estimate(&self, rolled: CounterState, now: Timestamp) -> u64 {
        let weighted = product(rolled.previous, self.ticks_left(rolled, now));
        weighted
            .div_ceil(self.window.get())
            .saturating_add(u64::from(rolled.current))
    }

    /// Time until the cost fits if nothing else arrives: in this window as the previous one fades, otherwise in the next as this one
    /// fades.
    fn time_until_fits(&self, rolled: CounterState, now: Timestamp, cost: u32) -> Nanos {
        let room = self.limit.saturating_sub(cost);
        let (fading, allowed, from) = match room.checked_sub(rolled.current) {
            Some(allowed) => (rolled.previous, allowed, rolled.start),
            None => (
                rolled.current,
                room,
                rolled.start.saturating_add(self.length()),
            ),
        };
        let excess = product(fading.saturating_sub(allowed), self.window.get());
        let ticks = excess.div_ceil(u64::from(fading).max(1));
        let at = ticks.saturating_mul(self.tick.get()).saturating_add(from);
        Nanos::from_nanos(at.saturating_sub(now.as_nanos()))
    }

    /// Charges nothing; stores the state only if it had to be corrected.
    fn charge_nothing(
        &self,
        state: CounterState,
        now: Timestamp,
        outcome: Outcome,
    ) -> Transition<CounterState> {
        let is_ahead = state.start > now.as_nanos();
        let is_over = state.previous > self.ceiling || state.current > self.ceiling;
        let next = (is_ahead || is_over).then(|| self.roll(state, now));
        Transition {
            outcome,
            next,
            receipt: Receipt::empty(now),
        }
    }

    fn reduce_count(
        &self,
        state: CounterState,
        now: Timestamp,
        rolled: CounterState,
        next: CounterState,
    ) -> Transition<CounterState> {
        if next == rolled {
            return self.charge_nothing(state, now, Outcome::Allow);
        }
        let receipt = Receipt::empty(now);
        Transition {
            outcome: Outcome::Allow,
            next: Some(next),
            receipt,
        }
    }
}

fn charge(rolled: CounterState, now: Timestamp, cost: u32) -> Transition<CounterState> {
    let next = CounterState {
        current: rolled.current.saturating_add(cost),
        ..rolled
    };
    let receipt = Receipt {
        cost: u64::from(cost),
        at: now,
        mark: rolled.start,
    };
    Transition {
        outcome: Outcome::Allow,
        next: Some(next),
        receipt,
    }
}

fn product(count: u32, ticks: u64) -> u64 {
    u64::from(count).saturating_mul(ticks)
}

fn saturate(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: u64 = 60_000_000_000;

    fn quota(limit: u64) -> SlidingCounter {
        SlidingCounter::builder(limit, Nanos::MINUTE)
            .build()
            .unwrap()
    }

    #[test]
    fn a_skipped_window_leaves_nothing_of_the_one_before() {
        let state = CounterState {
            start: 0,
            previous: 10,
            current: 50,
        };
        let used = |now| {
            100 - quota(100)
                .status(state, Timestamp::from_nanos(now))
                .remaining
        };
        assert_eq!(used(MINUTE), 50);
        assert_eq!(used(2 * MINUTE - 1), 1);
        assert_eq!(used(2 * MINUTE), 0);
    }

    #[test]
    fn a_clock_that_goes_back_keeps_both_counts() {
        let state = CounterState {
            start: 10 * MINUTE,
            previous: 40,
            current: 60,
        };
        let denied = quota(100).decide(state, Timestamp::from_nanos(MINUTE), 1);
        assert!(matches!(denied.outcome, Outcome::Deny { .. }));
        let moved = CounterState {
            start: MINUTE,
            previous: 40,
            current: 60,
        };
        assert_eq!(denied.next, Some(moved));
    }

    /// Regression, found by a property: 100 in one minute, one more early in the next, then the clock steps back by less than a second
    /// over the edge between them. The previous minute counted as faded, and 99 more were admitted.
    #[test]
    fn a_small_step_back_over_the_edge_of_a_window_admits_nothing_more() {
        let quota = quota(100);
        let full = quota.decide(
            CounterState::default(),
            Timestamp::from_nanos(MINUTE - 1),
            100,
        );
        let early = Timestamp::from_nanos(MINUTE + MINUTE / 100);
        let one = quota.decide(full.next.unwrap(), early, 1);
        assert_eq!(one.outcome, Outcome::Allow, "one of the hundred has faded");
        let state = one.next.unwrap();
        assert_eq!(quota.status(state, early).remaining, 0);
        let back = Timestamp::from_nanos(MINUTE - 1);
        assert_eq!(quota.status(state, back).remaining, 0);
        assert!(!quota.decide(state, back, 1).outcome.is_admitted());
    }

    #[test]
    fn a_new_window_length_takes_over_the_estimate() {
        let state = CounterState {
            start: MINUTE,
            previous: 80,
            current: 30,
        };
        let now = Timestamp::from_nanos(MINUTE + 42_000_000_000);
        let hourly = SlidingCounter::builder(1_000, Nanos::HOUR).build().unwrap();
        let converted = hourly.convert_state(&quota(100), state, now);
        assert_eq!(
            converted,
            CounterState {
                start: 0,
                previous: 0,
                current: 54
            }
        );
        assert_eq!(
            quota(10).convert_state(&quota(100), state, now),
            state,
            "a new limit keeps the state"
        );
    }

    #[test]
    fn a_refund_weighs_what_its_window_weighs() {
        let quota = quota(100);
        let charged = quota.decide(CounterState::default(), Timestamp::from_nanos(MINUTE), 60);
        let state = charged.next.unwrap();
        let later = Timestamp::from_nanos(2 * MINUTE + MINUTE / 2);
        assert_eq!(quota.status(state, later).remaining, 70);
        let refunded = quota.refund(state, later, &charged.receipt).next.unwrap();
        assert_eq!(
            quota.status(refunded, later).remaining,
            100,
            "30 came back, for 30 had faded"
        );
        let too_late = Timestamp::from_nanos(4 * MINUTE);
        let busy = quota.decide(state, too_late, 10).next.unwrap();
        assert_eq!(quota.refund(busy, too_late, &charged.receipt).next, None);
    }

    #[test]
    fn counts_from_a_larger_quota_are_brought_back_to_the_ceiling() {
        let state = CounterState {
            start: MINUTE,
            previous: u32::MAX,
            current: u32::MAX,
        };
        let corrected = quota(100)
            .decide(state, Timestamp::from_nanos(MINUTE), 0)
            .next
            .unwrap();
        assert_eq!((corrected.previous, corrected.current), (100, 100));
        let tier = SlidingCounter::builder(100, Nanos::MINUTE)
            .ceiling(500)
            .build()
            .unwrap();
        let corrected = tier
            .decide(state, Timestamp::from_nanos(MINUTE), 0)
            .next
            .unwrap();
        assert_eq!((corrected.previous, corrected.current), (500, 500));
    }
}
