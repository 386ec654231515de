//! Waiting for a bucket (`wait: 2s`): a request that would be denied for less than the wait is admitted with a delay,
//! and charged at once.
//!
//! A bucket with a wait is the same bucket with a larger capacity. Its state is the time at which it will be full
//! again. A request that exceeds the bucket's own capacity waits until it no longer does. It is charged in the same
//! all-or-nothing batch as everything else, so no other request can take its turn. A leaky queue waits by itself; for
//! it, `wait` bounds the length.
//!
//! Windows, logs and concurrency limits cannot know when a unit will be free, so their denials stay denials. Must not
//! know: rules, keys.

use tollgate_core::limit::{Limit, Quota};
use tollgate_core::{LeakyBucket, Nanos, Outcome, Rate, TokenBucket};
use tollgate_store::StoreReply;

/// A quota with a wait added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QueueingQuota {
    /// The deciding quota: the policy's quota with the wait added to its capacity.
    pub(crate) limit: Limit,
    /// The policy's capacity. A larger cost is never admitted, however long it waits.
    pub(crate) max_cost: u64,
    /// A request waits if the bucket's debt exceeds this.
    capacity: Nanos,
    /// The units that the wait adds to the capacity.
    added_units: u64,
}

/// How to add a wait to a meter's quotas. All get the same ceiling, because they share states.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QueueingOptions {
    wait: Nanos,
    /// Accepts as much debt as any of the meter's quotas with the wait added.
    shared_ceiling: TokenBucket,
}

impl QueueingOptions {
    /// The options for a meter with these quotas. `None` if they do not support waiting.
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

    /// The same with a shorter wait. `None` if it is not shorter.
    pub(crate) fn shortened(&self, max_wait: Nanos) -> Option<Self> {
        (max_wait < self.wait).then_some(Self {
            wait: max_wait,
            shared_ceiling: self.shared_ceiling,
        })
    }

    /// The quota without the wait, on states that may contain waiting requests.
    pub(crate) fn without_wait(&self, limit: &Limit) -> Limit {
        limit.denying_bucket().map_or(*limit, |bucket| {
            Limit::new(bucket.sharing_state_with(&self.shared_ceiling)).with_unit(limit.unit())
        })
    }

    /// The quota for a cost: with the wait added if the cost may wait, else without.
    pub(crate) fn for_cost(&self, limit: &Limit, cost: u64) -> (Limit, Option<QueueingQuota>) {
        let queueing = self.with_wait(limit);
        match queueing.filter(|queueing| cost <= queueing.max_cost) {
            Some(queueing) => (queueing.limit, Some(queueing)),
            None => (self.without_wait(limit), None),
        }
    }

    /// The quota with the wait added. `None` if it admits nothing, or the wait is shorter than one unit takes.
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
    /// A request waits if the bucket's debt exceeds this: the policy's capacity.
    pub(crate) const fn capacity(&self) -> Nanos {
        self.capacity
    }

    /// The quota that refunds a cancelled wait: only the end of the queue is given back.
    pub(crate) fn cancelling(&self) -> Option<Limit> {
        let queue = LeakyBucket::waiting_for(*self.limit.denying_bucket()?);
        Some(Limit::new(queue).with_unit(self.limit.unit()))
    }

    /// Translates a reply into the terms of the policy's quota: how long to wait, and what remains without waiting.
    pub(crate) fn translate(&self, reply: &mut StoreReply, cost: u64) {
        if reply.outcome == Outcome::Allow && cost > 0 {
            let debt = match reply.receipt.mark {
                // Nothing was charged: it was a peek, or another limit denied.
                0 => reply.status.reset_after.saturating_add(self.price(cost)),
                mark => Nanos::from_nanos(mark.saturating_sub(reply.receipt.at.as_nanos())),
            };
            let wait = debt.saturating_sub(self.capacity);
            if !wait.is_zero() {
                reply.outcome = Outcome::Wait(wait);
            }
        }
        reply.status.limit = self.max_cost;
        reply.status.remaining = reply.status.remaining.saturating_sub(self.added_units);
    }

    fn price(&self, cost: u64) -> Nanos {
        let Some(bucket) = self.limit.denying_bucket() else {
            return Nanos::ZERO;
        };
        let blocks = cost.div_ceil(bucket.block().max(1));
        Nanos::from_nanos(blocks.saturating_mul(bucket.interval().as_nanos()))
    }
}

/// Shortens a leaky queue so that no request waits longer than `wait`. Other limits stay as they are.
pub(crate) fn bound_queue(limit: &Limit, wait: Nanos) -> Limit {
    let Quota::LeakyBucket(queue) = limit.quota() else {
        return *limit;
    };
    let interval = queue.interval();
    let max_queued = wait
        .as_nanos()
        .checked_div(interval.as_nanos())
        .unwrap_or(0);
    // One is served, the others wait.
    if !queue.is_queue() || queue.limit() <= max_queued.saturating_add(1) {
        return *limit;
    }
    let shorter = LeakyBucket::queue(Rate::new(1, interval))
        .burst(max_queued)
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

    fn spend(quota: &QueueingQuota, state: &mut State, now: Timestamp, cost: u64) -> StoreReply {
        let decided = quota.limit.decide(state, now, Op::Spend(cost)).unwrap();
        if let Some(edit) = decided.next {
            state.apply(edit);
        }
        let mut reply = StoreReply {
            outcome: decided.outcome,
            status: quota.limit.status(state, now),
            receipt: decided.receipt,
            note: ReplyNote::Plain,
        };
        quota.translate(&mut reply, cost);
        reply
    }

    fn quota(limit: Limit, wait: Nanos) -> QueueingQuota {
        QueueingOptions::for_quotas(&[limit], wait)
            .unwrap()
            .with_wait(&limit)
            .unwrap()
    }

    #[test]
    fn a_waiting_request_proceeds_when_the_bucket_would_admit_it() {
        let bucket = TokenBucket::builder(Rate::per_second(2))
            .burst(3)
            .build()
            .unwrap();
        let quota = quota(bucket.into(), Nanos::from_secs(2));
        let mut state = State::default();
        let outcomes: Vec<Outcome> = (0..8)
            .map(|_| spend(&quota, &mut state, NOW, 1).outcome)
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
    fn a_large_cost_waits_until_all_of_it_has_refilled() {
        let bucket = TokenBucket::builder(Rate::per_second(1))
            .burst(5)
            .build()
            .unwrap();
        let quota = quota(bucket.into(), Nanos::from_secs(10));
        let mut state = State::default();
        spend(&quota, &mut state, NOW, 4);
        let reply = spend(&quota, &mut state, NOW, 5);
        assert_eq!(reply.outcome, Outcome::Wait(Nanos::from_secs(4)));
        let expected = QuotaStatus {
            limit: 5,
            remaining: 0,
            reset_after: Nanos::from_secs(9),
        };
        assert_eq!(reply.status, expected);
        assert_eq!(quota.max_cost, 5, "six are never admitted");
    }

    #[test]
    fn remaining_is_what_is_available_without_waiting() {
        let bucket = TokenBucket::builder(Rate::per_second(3_000))
            .block(1_000)
            .burst(5_000);
        let limit: Limit = bucket.build().unwrap().into();
        let quota = quota(limit, Nanos::from_secs(1));
        let mut state = State::default();
        assert_eq!(
            spend(&quota, &mut state, NOW, 1_500).status.remaining,
            3_000
        );
        assert_eq!(quota.max_cost, 5_000);
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
        let options = QueueingOptions::for_quotas(&[bucket], Nanos::SECOND).unwrap();
        assert!(options.with_wait(&bucket).is_none());
    }

    #[test]
    fn a_queue_is_no_longer_than_the_wait_allows() {
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
    fn a_request_that_is_not_charged_reports_the_wait_too() {
        let bucket: Limit = TokenBucket::builder(Rate::per_second(1))
            .build()
            .unwrap()
            .into();
        let mut reply = StoreReply {
            outcome: Outcome::Allow,
            receipt: Receipt::default(),
            ..StoreReply::EMPTY
        };
        reply.status.reset_after = Nanos::from_millis(700);
        quota(bucket, Nanos::SECOND).translate(&mut reply, 1);
        assert_eq!(reply.outcome, Outcome::Wait(Nanos::from_millis(700)));
    }
}
