//! Decides on a leaky bucket: the token bucket's decision, and the time until the queue ahead has leaked.

use super::LeakyBucket;
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::Tat;

impl LeakyBucket {
    /// Decides on `cost` units arriving at `now`. A cost of zero is a peek and is always allowed.
    ///
    /// A queue returns [`Outcome::Wait`] with the time until the units ahead of the request have leaked down to the delay. The place is
    /// charged at once, and later arrivals do not change the wait.
    pub fn decide(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let ahead = self.bucket.debt(tat, now);
        self.add_wait(ahead, self.bucket.decide(tat, now, cost))
    }

    /// Admits as many of `most` units as fit, at least one; denies if not even one fits.
    pub fn decide_up_to(&self, tat: Tat, now: Timestamp, most: u64) -> Transition<Tat> {
        let ahead = self.bucket.debt(tat, now);
        self.add_wait(ahead, self.bucket.decide_up_to(tat, now, most))
    }

    /// Adds `cost` units even if they do not fit, up to the overdraft, without waiting.
    pub fn charge_always(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        self.bucket.charge_always(tat, now, cost)
    }

    /// Corrects an earlier charge to the real cost.
    ///
    /// A meter refunds a surplus as a token bucket does. A queue refunds it only while no request stands behind: the waits of later
    /// requests count this place, and a new request in the gap would leave together with one of them. The last place of the queue is
    /// refunded whole until its turn, because what has leaked since stood ahead of it.
    pub fn settle(
        &self,
        tat: Tat,
        now: Timestamp,
        receipt: &Receipt,
        actual: u64,
    ) -> Transition<Tat> {
        if !self.is_queue() || actual >= receipt.cost {
            return self.bucket.settle(tat, now, receipt, actual);
        }
        let blocks = |cost| self.bucket.blocks(cost);
        let surplus = blocks(receipt.cost).saturating_sub(blocks(actual));
        let surplus = self.bucket.price(surplus);
        let is_last = tat == receipt.mark;
        self.bucket
            .reduce_debt(tat, now, if is_last { surplus } else { 0 })
    }

    /// Refunds a place: a wait was cancelled, or the work did not happen.
    pub fn refund(&self, tat: Tat, now: Timestamp, receipt: &Receipt) -> Transition<Tat> {
        self.settle(tat, now, receipt, 0)
    }

    /// Takes out `amount` units without a receipt; see [`TokenBucket::credit`].
    ///
    /// [`TokenBucket::credit`]: crate::TokenBucket::credit
    pub fn credit(&self, tat: Tat, now: Timestamp, amount: u64) -> Transition<Tat> {
        self.bucket.credit(tat, now, amount)
    }

    /// The status of this state for a client.
    #[must_use]
    pub fn status(&self, tat: Tat, now: Timestamp) -> QuotaStatus {
        self.bucket.status(tat, now)
    }

    /// The state with the same number of units in the bucket as `tat` has under `old`; see [`TokenBucket::rescale`].
    ///
    /// [`TokenBucket::rescale`]: crate::TokenBucket::rescale
    #[must_use]
    pub fn rescale(&self, old: &Self, tat: Tat, now: Timestamp) -> Tat {
        self.bucket.rescale(&old.bucket, tat, now)
    }

    fn add_wait(&self, ahead: u64, mut transition: Transition<Tat>) -> Transition<Tat> {
        let Some(delay) = self.delay else {
            return transition;
        };
        let wait = ahead.saturating_sub(delay);
        if wait > 0 && transition.receipt.cost > 0 {
            transition.outcome = Outcome::Wait(Nanos::from_nanos(wait));
        }
        transition
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rate::Rate;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn queue() -> LeakyBucket {
        LeakyBucket::queue(Rate::per_second(1))
            .burst(5)
            .build()
            .unwrap()
    }

    fn arrive(tat: &mut Tat, cost: u64) -> (Outcome, Receipt) {
        let transition = queue().decide(*tat, NOW, cost);
        *tat = transition.next.unwrap_or(*tat);
        (transition.outcome, transition.receipt)
    }

    #[test]
    fn the_last_waiter_takes_its_whole_place_back() {
        let mut tat = 0;
        arrive(&mut tat, 1);
        let before = tat;
        let (outcome, receipt) = arrive(&mut tat, 2);
        assert_eq!(outcome, Outcome::Wait(Nanos::SECOND));
        let later = NOW.after(Nanos::from_millis(900));
        assert_eq!(queue().refund(tat, later, &receipt).next, Some(before));
    }

    #[test]
    fn a_waiter_with_others_behind_takes_nothing_back() {
        let mut tat = 0;
        arrive(&mut tat, 1);
        let (_, middle) = arrive(&mut tat, 1);
        arrive(&mut tat, 1);
        assert_eq!(queue().refund(tat, NOW, &middle).next, None);
    }

    #[test]
    fn a_turn_that_has_begun_comes_back_only_as_far_as_it_has_not_leaked() {
        let mut tat = 0;
        let (_, receipt) = arrive(&mut tat, 2);
        let later = NOW.after(Nanos::from_millis(500));
        let refunded = queue().refund(tat, later, &receipt).next;
        assert_eq!(
            refunded,
            Some(later.as_nanos()),
            "1.5 s were left of it, and no more comes back"
        );
    }
}
