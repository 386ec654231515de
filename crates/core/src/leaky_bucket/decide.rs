//! Deciding on a leaky bucket: the token bucket's answer, and how long the queue ahead takes to leak.

use super::LeakyBucket;
use crate::outcome::{Outcome, QuotaStatus, Receipt, Transition};
use crate::time::{Nanos, Timestamp};
use crate::token_bucket::Tat;

impl LeakyBucket {
    /// Decides on `cost` units arriving at `now`. A cost of zero is a peek and is always allowed.
    ///
    /// A queue answers [`Outcome::Wait`] with the time until what stands before the request has leaked down to the
    /// delay; the place is charged at once and the promise holds whatever arrives later.
    pub fn decide(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        let ahead = self.bucket.debt(tat, now);
        self.queued(ahead, self.bucket.decide(tat, now, cost))
    }

    /// Admits as much of `most` units as fits, down to one; denies only where not even that fits.
    pub fn decide_up_to(&self, tat: Tat, now: Timestamp, most: u64) -> Transition<Tat> {
        let ahead = self.bucket.debt(tat, now);
        self.queued(ahead, self.bucket.decide_up_to(tat, now, most))
    }

    /// Adds `cost` units whether or not they fit, up to the overdraft, without waiting.
    pub fn charge_always(&self, tat: Tat, now: Timestamp, cost: u64) -> Transition<Tat> {
        self.bucket.charge_always(tat, now, cost)
    }

    /// Corrects an earlier charge to what the work turned out to cost.
    ///
    /// From a meter, a surplus comes back as from a token bucket. From a queue it comes back only while nobody
    /// stands behind: whoever came later was promised an instant that counts this place, and a newcomer let into
    /// the gap would leave together with them. A place at the end of the queue comes back whole until its turn,
    /// for what has leaked since stood before it.
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
        let surplus = self.bucket.price(receipt.cost.saturating_sub(actual));
        let is_last = tat == receipt.mark;
        self.bucket
            .lowered(tat, now, if is_last { surplus } else { 0 })
    }

    /// Gives a place back: a wait that is cancelled, or work that did not happen.
    pub fn refund(&self, tat: Tat, now: Timestamp, receipt: &Receipt) -> Transition<Tat> {
        self.settle(tat, now, receipt, 0)
    }

    /// Takes `amount` units out that nobody can show a receipt for; see [`TokenBucket::credit`].
    ///
    /// [`TokenBucket::credit`]: crate::TokenBucket::credit
    pub fn credit(&self, tat: Tat, now: Timestamp, amount: u64) -> Transition<Tat> {
        self.bucket.credit(tat, now, amount)
    }

    /// What a client may be told about this state.
    #[must_use]
    pub fn status(&self, tat: Tat, now: Timestamp) -> QuotaStatus {
        self.bucket.status(tat, now)
    }

    /// The same number of units in the bucket under this quota as under `old`; see [`TokenBucket::rescale`].
    ///
    /// [`TokenBucket::rescale`]: crate::TokenBucket::rescale
    #[must_use]
    pub fn rescale(&self, old: &Self, tat: Tat, now: Timestamp) -> Tat {
        self.bucket.rescale(&old.bucket, tat, now)
    }

    fn queued(&self, ahead: u64, mut transition: Transition<Tat>) -> Transition<Tat> {
        let Some(grace) = self.grace else {
            return transition;
        };
        let wait = ahead.saturating_sub(grace);
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
