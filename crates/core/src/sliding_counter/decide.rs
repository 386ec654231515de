//! Deciding on two counters. With e ticks gone of a window of W, a cost n is admitted while
//! `prev · (W − e) + (cur + n) · W ≤ L · W`, and the wait until it is follows by solving the same line for e.

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
            return self.unspent(state, now, Outcome::Never);
        };
        if cost32 == 0 {
            return self.unspent(state, now, Outcome::Allow);
        }
        if self.fits(rolled, now, cost32) {
            return spent(rolled, now, cost32);
        }
        let retry_after = self.time_until_fits(rolled, now, cost32);
        self.unspent(state, now, Outcome::Deny { retry_after })
    }

    /// Spends as much of `most` units as there is, down to one; denies only where there is not even that.
    pub fn decide_up_to(
        &self,
        state: CounterState,
        now: Timestamp,
        most: u64,
    ) -> Transition<CounterState> {
        let there = self.status(state, now).remaining;
        self.decide(state, now, most.min(there.max(1)))
    }

    /// Spends `cost` units whether or not they are there, up to the overdraft.
    pub fn charge_always(
        &self,
        state: CounterState,
        now: Timestamp,
        cost: u64,
    ) -> Transition<CounterState> {
        let rolled = self.roll(state, now);
        let room = u64::from(self.saturation).saturating_sub(self.estimate(rolled, now));
        match u32::try_from(cost.min(room)) {
            Ok(charged) if charged > 0 => spent(rolled, now, charged),
            _ => self.unspent(state, now, Outcome::Allow),
        }
    }

    /// Corrects an earlier charge to what the work turned out to cost. More is charged now; less comes back into
    /// the window it was charged to, where it weighs what it weighs now, and nowhere else.
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
        self.lowered(state, now, rolled, next)
    }

    /// Gives a charge back: settles it at nothing.
    pub fn refund(
        &self,
        state: CounterState,
        now: Timestamp,
        receipt: &Receipt,
    ) -> Transition<CounterState> {
        self.settle(state, now, receipt, 0)
    }

    /// Gives back `amount` units that nobody can show a receipt for: from the current window, then the previous.
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
        self.lowered(state, now, rolled, next)
    }

    /// What a client may be told about this state.
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

    /// The state to continue with when `old` is replaced by this quota. A window of another length cannot weigh
    /// the old counters, so what they estimate now, rounded up, becomes the current count.
    #[must_use]
    pub fn convert_state(&self, old: &Self, state: CounterState, now: Timestamp) -> CounterState {
        let rolled = old.roll(state, now);
        if self.length() == old.length() {
            return rolled;
        }
        CounterState {
            start: self.start_of(now),
            previous: 0,
            current: saturate(old.estimate(rolled, now)),
        }
    }

    /// The state as it stands at `now`: windows that have passed moved along, counts within the ceiling. A start
    /// that lies ahead means that the clock went back: the counts are kept and the window starts anew at `now`, so
    /// that the previous one weighs in full. Were the start moved to a whole multiple of the window, a step back over
    /// its edge would find the previous window almost faded, and mint what it held.
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
                start: self.start_of(now),
                previous: 0,
                current: 0,
            }
        }
    }

    fn start_of(&self, now: Timestamp) -> u64 {
        let begun = now.as_nanos().checked_rem(self.length()).unwrap_or(0);
        now.as_nanos().saturating_sub(begun)
    }

    /// Ticks of the current window that are still to come.
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

    /// What has been spent in the last window's length, as estimated, rounded up.
    fn estimate(&self, rolled: CounterState, now: Timestamp) -> u64 {
        let weighted = product(rolled.previous, self.ticks_left(rolled, now));
        weighted
            .div_ceil(self.window.get())
            .saturating_add(u64::from(rolled.current))
    }

    /// Time until the cost fits if nothing else arrives: in this window as the previous one fades, else in the
    /// next as this one does.
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

    /// Nothing is charged; the state is stored only if it had to be corrected.
    fn unspent(
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

    fn lowered(
        &self,
        state: CounterState,
        now: Timestamp,
        rolled: CounterState,
        next: CounterState,
    ) -> Transition<CounterState> {
        if next == rolled {
            return self.unspent(state, now, Outcome::Allow);
        }
        let receipt = Receipt::empty(now);
        Transition {
            outcome: Outcome::Allow,
            next: Some(next),
            receipt,
        }
    }
}

fn spent(rolled: CounterState, now: Timestamp, cost: u32) -> Transition<CounterState> {
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

    /// Found by a property: 100 in one minute, one more early in the next, then the clock steps back by less than a
    /// second, over the edge between them. The previous minute used to count as faded, and 99 more were admitted.
    #[test]
    fn a_small_step_back_over_the_edge_of_a_window_mints_nothing() {
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
    fn a_new_window_length_inherits_the_estimate() {
        let state = CounterState {
            start: MINUTE,
            previous: 80,
            current: 30,
        };
        let now = Timestamp::from_nanos(MINUTE + 42_000_000_000);
        let hourly = SlidingCounter::builder(1_000, Nanos::HOUR).build().unwrap();
        let inherited = hourly.convert_state(&quota(100), state, now);
        assert_eq!(
            inherited,
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
