//! Decides on a custom bucket: rounds the clock and fills in the state of a new key, then asks the token bucket.

use super::CustomBucket;
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::Tat;

impl CustomBucket {
    /// Decides on spending `cost` units at `now`. A cost of zero is a peek and is always allowed. A denial of a new key stores when the key
    /// was first seen, because its tokens arrive counted from then.
    pub fn decide(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let (known, stepped) = self.inputs(tat, now);
        let mut transition = at_real_time(self.bucket.decide(known, stepped, cost), now);
        if let Outcome::Deny { retry_after } = transition.outcome {
            transition.outcome = Outcome::Deny {
                retry_after: self.real_wait(retry_after, stepped, now),
            };
            if self.is_new(tat, now) {
                transition.next = Some(known);
            }
        }
        transition
    }

    /// Spends as many of `most` units as are left, at least one block; denies if not even one block is left.
    pub fn decide_up_to(&self, tat: Tat, now: Timestamp, most: u64) -> Transition<Tat> {
        let available = self.status(tat, now).remaining;
        self.decide(tat, now, most.min(available.max(self.bucket.block())))
    }

    /// Spends `cost` units even if they are not left, down to the overdraft.
    pub fn charge_always(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let (known, stepped) = self.inputs(tat, now);
        at_real_time(self.bucket.charge_always(known, stepped, cost), now)
    }

    /// Corrects an earlier charge to the real cost; see [`TokenBucket::settle`](crate::TokenBucket::settle).
    pub fn settle(
        &self,
        tat: Tat,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<Tat> {
        let (known, stepped) = self.inputs(tat, now);
        let charge = Receipt {
            at: self.last_step(receipt.at),
            ..*receipt
        };
        at_real_time(self.bucket.settle(known, stepped, &charge, actual), now)
    }

    /// Gives back `amount` units without a receipt, up to a full bucket.
    pub fn credit(&self, tat: Tat, now: Timestamp, amount: u64) -> Transition<Tat> {
        let (known, stepped) = self.inputs(tat, now);
        at_real_time(self.bucket.credit(known, stepped, amount), now)
    }

    /// The status of this state for a client.
    #[must_use]
    pub fn status(&self, tat: Tat, now: Timestamp) -> QuotaStatus {
        let (known, stepped) = self.inputs(tat, now);
        let status = self.bucket.status(known, stepped);
        QuotaStatus {
            reset_after: self.real_wait(status.reset_after, stepped, now),
            ..status
        }
    }

    /// What the token bucket decides on: the state, and the clock rounded down to the last step.
    fn inputs(&self, tat: Tat, now: Timestamp) -> (Tat, Timestamp) {
        let stepped = self.last_step(now).as_nanos();
        let debt = if self.is_new(tat, now) {
            self.initial_debt
        } else if self.refills_in_steps() {
            // A part of a block cannot be owed: it is what is left of a step that is not a whole number of intervals.
            let interval = self.bucket.interval().as_nanos();
            let debt = tat.saturating_sub(stepped);
            debt.div_ceil(interval.max(1)).saturating_mul(interval)
        } else {
            return (tat, now);
        };
        (stepped.saturating_add(debt), Timestamp::from_nanos(stepped))
    }

    fn last_step(&self, now: Timestamp) -> Timestamp {
        let since_step = now.as_nanos().checked_rem(self.step).unwrap_or(0);
        Timestamp::from_nanos(now.as_nanos().saturating_sub(since_step))
    }

    /// Whether the key was never seen, or was full and idle for so long that it counts as new.
    fn is_new(&self, tat: Tat, now: Timestamp) -> bool {
        self.initial_debt > 0 && (tat == 0 || tat.saturating_add(self.tail) <= now.as_nanos())
    }

    /// The real time until the rounded clock has advanced by `span`.
    fn real_wait(&self, span: Nanos, stepped: Timestamp, now: Timestamp) -> Nanos {
        let steps = span.as_nanos().div_ceil(self.step.max(1));
        let stepped_wait = steps.saturating_mul(self.step);
        Nanos::from_nanos(stepped_wait).saturating_sub(now.since(stepped))
    }
}

/// A receipt carries the instant of its charge, not of the step before.
fn at_real_time(mut transition: Transition<Tat>, now: Timestamp) -> Transition<Tat> {
    transition.receipt.at = now;
    transition
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::custom_bucket::CustomBucket;
    use crate::rate::Rate;
    use crate::token_bucket::TokenBucket;

    const START: Timestamp = Timestamp::from_secs(1_700_000_000);

    fn at(millis: u64) -> Timestamp {
        START.after(Nanos::from_millis(millis))
    }

    fn spend(quota: &CustomBucket, tat: &mut Tat, now: Timestamp) -> Outcome {
        let transition = quota.decide(*tat, now, 1);
        *tat = transition.next.unwrap_or(*tat);
        transition.outcome
    }

    #[test]
    fn all_tokens_of_a_step_arrive_together_and_none_before() {
        let bucket = TokenBucket::builder(Rate::per_second(3)).burst(3);
        let quota = CustomBucket::builder(bucket)
            .refill_in_steps()
            .build()
            .unwrap();
        let now = START.after(Nanos::from_nanos(5));
        let mut tat = 0;
        for _ in 0..3 {
            assert_eq!(spend(&quota, &mut tat, now), Outcome::Allow);
        }
        let Outcome::Deny { retry_after } = spend(&quota, &mut tat, now) else {
            panic!("three tokens were spent");
        };
        assert_eq!(retry_after.as_nanos(), 999_999_995);
        let early = START.after(Nanos::from_nanos(999_999_999));
        assert!(!spend(&quota, &mut tat, early).is_admitted(), "1 ns early");
        let next = now.after(retry_after);
        assert_eq!(quota.status(tat, next).remaining, 3);
    }

    #[test]
    fn a_new_key_starts_with_its_initial_tokens_and_a_denial_starts_its_clock() {
        let bucket = TokenBucket::builder(Rate::per_second(10)).burst(10);
        let quota = CustomBucket::builder(bucket)
            .initial(0, Nanos::HOUR)
            .build()
            .unwrap();
        let mut tat = 0;
        let wait = Nanos::from_millis(100);
        assert_eq!(quota.status(tat, START).remaining, 0);
        assert_eq!(
            spend(&quota, &mut tat, START),
            Outcome::Deny { retry_after: wait }
        );
        assert_ne!(tat, 0, "the key was seen");
        assert_eq!(spend(&quota, &mut tat, at(100)), Outcome::Allow);
        assert_eq!(quota.status(tat, at(1_100)).remaining, 10, "full");
        assert_eq!(quota.status(tat, at(3_600_000)).remaining, 10, "remembered");
        assert_eq!(
            quota.status(tat, at(3_700_000)).remaining,
            0,
            "forgotten, so new"
        );
    }

    #[test]
    fn a_peek_at_a_new_key_stores_nothing() {
        let bucket = TokenBucket::builder(Rate::per_second(10));
        let quota = CustomBucket::builder(bucket)
            .initial(1, Nanos::HOUR)
            .build()
            .unwrap();
        assert_eq!(quota.decide(0, START, 0).next, None);
        assert_eq!(quota.decide(0, START, 11).outcome, Outcome::Never);
        assert_eq!(quota.decide(0, START, 11).next, None);
    }
}
