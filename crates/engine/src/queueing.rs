//! `wait: 2s` on a bucket: a denial that would soon be over becomes a place in a queue, charged when it is promised.
//!
//! A bucket that may be waited for is the same bucket with a larger capacity: the state is the instant at which all that
//! was admitted will have been earned, so a request that finds it beyond the bucket's own capacity proceeds when it no
//! longer is. The place is charged in the same all-or-nothing step as everything else, so what is promised to one is
//! never given to another. Of a leaky queue, which waits by itself, `wait` bounds the length.
//!
//! Windows, logs and places cannot promise an instant; for them a denial stays a denial. Must not know: rules, keys.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate, TokenBucket};
use tollgate_store::StoreReply;

/// A quota and how long one may wait for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueingQuota {
    /// What decides: the quota with the wait added to its capacity.
    pub(crate) limit: Limit,
    /// The most that is admitted at once. A larger cost is never admitted, however long it waits.
    pub(crate) max_cost: u64,
    /// The debt from which on one waits.
    capacity: Nanos,
    /// What the capacity has too much of, in units.
    added_units: u64,
}

/// What a meter's quotas become if they may be waited for: all with the same ceiling, because they share states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueingOptions {
    wait: Nanos,
    /// Accepts as much debt as any quota of the meter with the wait added.
    shared_ceiling: TokenBucket,
}

impl QueueingOptions {
    /// For a meter of these quotas. `None` where nobody can be promised anything.
    pub(crate) fn for_quotas(quotas: &[Limit], wait: Nanos) -> Option<Self> {
        let ceilings = quotas
            .iter()
            .map(|limit| limit.denying_bucket().map(TokenBucket::ceiling));
        let ceiling = ceilings
            .collect::<Option<Vec<Nanos>>>()?
            .into_iter()
            .max()?;
        let widest = Rate::new(1, ceiling.saturating_add(wait));
        let widest = TokenBucket::builder(widest).build().ok()?;
        Some(Self {
            wait,
            shared_ceiling: widest,
        })
    }

    /// The quota itself, deciding on states that may owe for waits.
    pub(crate) fn without_wait(&self, limit: &Limit) -> Limit {
        limit.denying_bucket().map_or(*limit, |bucket| {
            Limit::new(bucket.sharing_state_with(&self.shared_ceiling)).with_unit(limit.unit())
        })
    }

    /// The quota with the wait added. `None` for one that admits nothing, and where the wait is shorter than one unit.
    pub(crate) fn with_wait(&self, limit: &Limit) -> Option<QueueingQuota> {
        let own = limit.denying_bucket().filter(|bucket| bucket.limit() > 0)?;
        let interval = own.interval().as_nanos();
        let blocks = |span: u64| span.checked_div(interval).unwrap_or(0);
        let added = blocks(self.wait.as_nanos()).saturating_mul(own.block());
        if added == 0 {
            return None;
        }
        let debt = own.saturation().saturating_sub(own.refill_time());
        let stretched = TokenBucket::builder(Rate::new(own.block(), own.interval()))
            .block(own.block())
            .burst(own.limit().saturating_add(added))
            .overdraft(blocks(debt.as_nanos()).saturating_mul(own.block()))
            .build()
            .ok()?
            .sharing_state_with(&self.shared_ceiling);
        Some(QueueingQuota {
            limit: Limit::new(stretched).with_unit(limit.unit()),
            max_cost: own.limit(),
            capacity: own.refill_time(),
            added_units: added,
        })
    }
}

impl QueueingQuota {
    /// The debt from which on one waits: what the quota admits by itself.
    pub(crate) const fn capacity(&self) -> Nanos {
        self.capacity
    }

    /// The answer to spending `cost`, in the quota's own terms: how long the wait is, and what remains without waiting.
    pub(crate) fn translate(&self, answer: &mut StoreReply, cost: u64) {
        if answer.outcome == Outcome::Allow && cost > 0 {
            let owed = match answer.receipt.mark {
                // Nothing was charged, because it was a look or another limit refused.
                0 => answer.status.reset_after.saturating_add(self.price(cost)),
                mark => Nanos::from_nanos(mark.saturating_sub(answer.receipt.at.as_nanos())),
            };
            let wait = owed.saturating_sub(self.capacity);
            if !wait.is_zero() {
                answer.outcome = Outcome::Wait(wait);
            }
        }
        answer.status.limit = self.max_cost;
        answer.status.remaining = answer.status.remaining.saturating_sub(self.added_units);
    }

    fn price(&self, cost: u64) -> Nanos {
        let Some(bucket) = self.limit.denying_bucket() else {
            return Nanos::ZERO;
        };
        let blocks = cost.div_ceil(bucket.block().max(1));
        Nanos::from_nanos(blocks.saturating_mul(bucket.interval().as_nanos()))
    }
}

/// A leaky queue in which nobody waits longer than this. Anything else is left as it is.
pub(crate) fn bound_queue(limit: &Limit, wait: Nanos) -> Limit {
    let Quota::LeakyBucket(queue) = limit.quota() else {
        return *limit;
    };
    let interval = queue.interval();
    let places = wait
        .as_nanos()
        .checked_div(interval.as_nanos())
        .unwrap_or(0);
    // One is served, the others wait.
    if !queue.is_queue() || queue.limit() <= places.saturating_add(1) {
        return *limit;
    }
    let shorter = LeakyBucket::queue(Rate::new(1, interval))
        .burst(places)
        .build();
    shorter.map_or(*limit, |shorter| {
        Limit::new(shorter.sharing_state_with(queue)).with_unit(limit.unit())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use tollgate_core::limit::{Op, State};
    use tollgate_core::{FixedWindow, QuotaStatus, Receipt, Timestamp, Window};
    use tollgate_store::ReplyNote;

    const NOW: Timestamp = Timestamp::from_secs(1_000);

    fn asked(patient: &QueueingQuota, state: &mut State, now: Timestamp, cost: u64) -> StoreReply {
        let decided = patient.limit.decide(state, now, Op::Spend(cost)).unwrap();
        if let Some(edit) = decided.next {
            state.apply(edit);
        }
        let mut answer = StoreReply {
            outcome: decided.outcome,
            status: patient.limit.status(state, now),
            receipt: decided.receipt,
            note: ReplyNote::Plain,
        };
        patient.translate(&mut answer, cost);
        answer
    }

    fn patient(limit: Limit, wait: Nanos) -> QueueingQuota {
        QueueingOptions::for_quotas(&[limit], wait)
            .unwrap()
            .with_wait(&limit)
            .unwrap()
    }

    #[test]
    fn who_waits_proceeds_when_the_bucket_would_have_admitted_them() {
        let bucket = TokenBucket::builder(Rate::per_second(2))
            .burst(3)
            .build()
            .unwrap();
        let patient = patient(bucket.into(), Nanos::from_secs(2));
        let mut state = State::default();
        let outcomes: Vec<Outcome> = (0..8)
            .map(|_| asked(&patient, &mut state, NOW, 1).outcome)
            .collect();
        let wait = |millis| Outcome::Wait(Nanos::from_millis(millis));
        let denied = Outcome::Deny {
            retry_after: Nanos::from_millis(500),
        };
        let allow = Outcome::Allow;
        assert_eq!(
            outcomes,
            [
                allow,
                allow,
                allow,
                wait(500),
                wait(1_000),
                wait(1_500),
                wait(2_000),
                denied
            ]
        );
    }

    #[test]
    fn a_large_cost_waits_until_all_of_it_is_there() {
        let bucket = TokenBucket::builder(Rate::per_second(1))
            .burst(5)
            .build()
            .unwrap();
        let patient = patient(bucket.into(), Nanos::from_secs(10));
        let mut state = State::default();
        asked(&patient, &mut state, NOW, 4);
        let answer = asked(&patient, &mut state, NOW, 5);
        assert_eq!(answer.outcome, Outcome::Wait(Nanos::from_secs(4)));
        let expected = QuotaStatus {
            limit: 5,
            remaining: 0,
            reset_after: Nanos::from_secs(9),
        };
        assert_eq!(answer.status, expected);
        assert_eq!(patient.max_cost, 5, "six are never admitted");
    }

    #[test]
    fn what_remains_is_what_can_be_had_without_waiting() {
        let bucket = TokenBucket::builder(Rate::per_second(3_000))
            .block(1_000)
            .burst(5_000);
        let limit: Limit = bucket.build().unwrap().into();
        let patient = patient(limit, Nanos::from_secs(1));
        let mut state = State::default();
        assert_eq!(
            asked(&patient, &mut state, NOW, 1_500).status.remaining,
            3_000
        );
        assert_eq!(patient.max_cost, 5_000);
    }

    #[test]
    fn a_window_cannot_be_waited_for_and_a_bucket_not_for_less_than_a_unit() {
        let window: Limit = FixedWindow::builder(5, Window::Epoch(Nanos::MINUTE))
            .build()
            .unwrap()
            .into();
        assert!(QueueingOptions::for_quotas(&[window], Nanos::SECOND).is_none());
        let bucket: Limit = TokenBucket::builder(Rate::per_minute(1))
            .build()
            .unwrap()
            .into();
        let patience = QueueingOptions::for_quotas(&[bucket], Nanos::SECOND).unwrap();
        assert!(patience.with_wait(&bucket).is_none());
    }

    #[test]
    fn a_queue_is_no_longer_than_one_may_wait() {
        let queue = LeakyBucket::queue(Rate::per_second(1))
            .burst(10)
            .build()
            .unwrap();
        let limit = bound_queue(&queue.into(), Nanos::from_millis(2_500));
        let mut state = State::default();
        let outcomes: Vec<Outcome> = (0..4)
            .map(|_| {
                let decided = limit.decide(&state, NOW, Op::Spend(1)).unwrap();
                decided.next.into_iter().for_each(|edit| state.apply(edit));
                decided.outcome
            })
            .collect();
        let wait = |secs| Outcome::Wait(Nanos::from_secs(secs));
        let denied = Outcome::Deny {
            retry_after: Nanos::SECOND,
        };
        assert_eq!(outcomes, [Outcome::Allow, wait(1), wait(2), denied]);
        assert_eq!(bound_queue(&queue.into(), Nanos::MINUTE), queue.into());
    }

    #[test]
    fn who_is_not_charged_hears_of_the_wait_all_the_same() {
        let bucket: Limit = TokenBucket::builder(Rate::per_second(1))
            .build()
            .unwrap()
            .into();
        let mut answer = StoreReply {
            outcome: Outcome::Allow,
            receipt: Receipt::default(),
            ..StoreReply::EMPTY
        };
        answer.status.reset_after = Nanos::from_millis(700);
        patient(bucket, Nanos::SECOND).translate(&mut answer, 1);
        assert_eq!(answer.outcome, Outcome::Wait(Nanos::from_millis(700)));
    }
}
